#!/bin/sh
# The provisioner of a DAG: job id, seconds to stay, machines that are wanted for an epoch.
# Runs at the access point, as the owner of the DAG.
job=$1 linger=$2 machines=$3

# Here machines are asked for, and waited for, where a site wants that, as by
# "htcondor annex create". Without it the pool's own machines are taken as they come.
echo "provisioner of $machines machines: the pool's own"

# ProvisionerState 2: provisioned (HTCondor manual, "PROVISIONER"). DAGMan starts the other nodes.
condor_qedit "$job" ProvisionerState 2 || exit 1

# It looks every few seconds, and takes a provisioner that has ended before that for a failed one.
sleep "$linger"
