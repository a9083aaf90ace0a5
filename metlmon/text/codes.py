"""Names of HTCondor's hold and vacate codes, and of signals.

Source: HTCondor manual, "Job ClassAd Attributes" (HoldReasonCode, VacateReasonCode), and
``condor_holdcodes.h``.
"""

from __future__ import annotations

import signal
from typing import Final

_HOLD: Final = (
    "Unspecified UserRequest GlobusGramError JobPolicy CorruptedCredential JobPolicyUndefined "
    "FailedToCreateProcess UnableToOpenOutput UnableToOpenInput UnableToOpenOutputStream "
    "UnableToOpenInputStream InvalidTransferAck TransferOutputError TransferInputError IwdError "
    "SubmittedOnHold SpoolingInput JobShadowMismatch InvalidTransferGoAhead HookPrepareJobFailure "
    "MissedDeferredExecutionTime StartdHeldJob UnableToInitUserLog FailedToAccessUserAccount "
    "NoCompatibleShadow InvalidCronSettings SystemPolicy SystemPolicyUndefined "
    "GlexecChownSandboxToUser PrivsepChownSandboxToUser GlexecChownSandboxToCondor "
    "PrivsepChownSandboxToCondor MaxTransferInputSizeExceeded MaxTransferOutputSizeExceeded "
    "JobOutOfResources InvalidDockerImage FailedToCheckpoint EC2UserError EC2InternalError "
    "EC2AdminError EC2ConnectionProblem EC2ServerError EC2InstancePotentiallyLostError "
    "PreScriptFailed PostScriptFailed SingularityTestFailed JobDurationExceeded "
    "JobExecuteExceeded HookShadowPrepareJobFailure"
)
_VACATE: Final = (
    "JobPolicyVacate SystemPolicyVacate ShadowException JobNotStarted UserVacateJob "
    "JobShouldRequeue FailedToActivateClaim StarterError ReconnectFailed ClaimDeactivated "
    "StartdVacateCommand StartdPreemptExpression StartdException StartdShutdown StartdDraining "
    "StartdCoalesce StartdHibernate StartdReleaseCommand StartdPreemptingClaimRank "
    "StartdPreemptingClaimUserPrio VMError ContainerError ScheddVacate JobRemoved "
    "ScratchDirError SuccessfulCheckpoint"
)
FIRST_VACATE_CODE: Final = 1000

NAMES: Final = dict(enumerate(_HOLD.split())) | dict(enumerate(_VACATE.split(), FIRST_VACATE_CODE))
"""Names of hold codes (below 1000) and vacate codes."""


def code_text(code: int, subcode: int | None = None) -> str:
    """``34/102 JobOutOfResources``: number and name, with the subcode where it is known."""
    number = str(code) if subcode is None else f"{code}/{subcode}"
    return f"{number} {NAMES[code]}" if code in NAMES else number


def signal_text(number: int) -> str:
    """``killed by signal 9 (SIGKILL; out of memory?)``."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"killed by signal {number}"
    hint = "; out of memory?" if name == "SIGKILL" else ""
    return f"killed by signal {number} ({name}{hint})"
