"""The bundled trainer, and the templates of jobs that train."""
