"""metlmon: watch ensembles of model trainings that run as HTCondor DAGs."""

__version__ = "0.1.0"
