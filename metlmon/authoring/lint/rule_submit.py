"""Rules for submit descriptions: stray lines, undefined macros, logs, GPUs, mail.

Source: HTCondor manual, "condor_submit".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from metlmon.authoring.lint.rules import LintContext
from metlmon.dagman.commands import VarsCommand
from metlmon.dagman.lexer import shown
from metlmon.dagman.records import Node
from metlmon.dagman.submit_description import Description, kilobytes
from metlmon.errors import nearest

COMPARISON_STARTS: Final = ("=", "?=", "!=")
"""Starts of an assigned value where ``==``, ``=?=`` or ``=!=`` was meant."""

LONGEST_EXPRESSION: Final = 10_000
"""Maximum length in characters: ten times the longest real requirements."""

_BARE_CONDITION: Final = re.compile(
    r"[(\s!]*(?:TARGET|MY)\.\w+\s*(?:==|=\?=|=!=|!=|<|>|\|\||&&|\)|$)|.{0,4000}?\s(?:&&|\|\|)\s",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSIONS: Final = re.compile(
    r"(?:requirements|rank|periodic_(?:hold|release|remove|vacate)|on_exit_(?:hold|remove))\Z"
)
"""Commands with expressions, which condor_submit refuses if it cannot parse them."""

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
_BRACKETS: Final = re.compile(r"[()]")
_OPEN_END: Final = re.compile(r"(?:&&|\|\||==|=\?=|=!=|<=?|>=?|[-+*/])\s*\Z")

_MACRO: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_ITEMS: Final = re.compile(r"\b(?:in|from|matching)\b")

#: Macros predefined by condor_submit and DAGMan, and the checkpoint, which a run's first epoch
#: lacks.
_BUILT_IN: Final = frozenset(
    """
    arch opsys opsysandver opsysver opsysmajorver username hostname full_hostname ip_address tilde
    home pid ppid islinux iswindows cluster clusterid process procid node step row item itemindex
    job retry max_retries dag_status failed_count dagmanjobid dag_id dag_parent_names dollar
    submit_file submit_time year month day random_choice random_integer dagman_max_jobs_idle
    node_name continue_from_checkpoint
    """.split()
)

_GPU_REQUESTS: Final = frozenset(
    """
    gpus_minimum_memory gpus_minimum_capability gpus_maximum_capability gpus_minimum_runtime
    require_gpus
    """.split()
)
_GPU_ATTRIBUTES: Final = re.compile(
    r"\b(?:TARGET\.)?(?:CUDA\w+|GPUs_\w+|TotalGPUs|GPUs)\b", re.IGNORECASE
)

MAX_LOGS: Final = 20
"""Maximum number of logs of one DAG without a finding: one log per run is common."""

MAX_MAILS: Final = 10
"""Maximum number of jobs with mail without a finding."""


def check(context: LintContext) -> None:
    """Check every description, and the logs of the trainings."""
    for text, nodes in context.descriptions():
        _check_lines(context, text)
        _check_ifs(context, text)
        if nodes:
            _check_macros(context, text, nodes)
            _check_gpus(context, text)
            _check_mail(context, text, nodes)
            if context.requests:
                _check_requests(context, text, nodes)
    _check_logs(context)
    _check_names(context)


def unfinished(value: str) -> str | None:
    """What is wrong with a ClassAd expression's quotes, brackets or end, or None."""
    if len(value) > LONGEST_EXPRESSION:
        return None
    unquoted = _QUOTED.sub('""', value)
    if '"' in unquoted.replace('""', ""):
        return "opens a quote that is not closed"
    depth = 0
    for bracket in _BRACKETS.findall(unquoted):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return "closes a bracket that was not opened"
    if depth > 0:
        return "opens a bracket that is not closed"
    return "ends where something must follow" if _OPEN_END.search(unquoted) else None


def _check_requests(context: LintContext, text: Description, nodes: list[Node]) -> None:
    """Requests that are larger than what completed jobs used, or that jobs exceeded."""
    for command in {command for _, command, _ in context.requests}:
        statement = text.last(command)
        if statement is None:
            continue
        # Without macros it is the same for all nodes.
        for node in nodes if "$" in statement.value else nodes[:1]:
            value = context.values(node, text, command)[command]
            amount = kilobytes(value, "m" if "memory" in command else "k")
            if amount is not None:
                found = context.requests.get((node.submit, command, amount))
                if found is not None:
                    context.report(found[0], statement, found[1])


def _check_lines(context: LintContext, text: Description) -> None:
    """Conditions without an assignment, unparsable expressions, stray lines."""
    alone = "is a line by itself: it is not a requirement, the job goes anywhere"
    for statement in text.statements:
        # condor_submit silently parses "TARGET.X == y" as an assignment of "= y" to an unused
        # name; it refuses a bare condition in brackets.
        is_free_text = statement.key in ("arguments", "args", "environment", "env")
        if is_free_text or statement.directive:
            continue
        if statement.value.startswith(COMPARISON_STARTS):
            quoted = statement.file in text.recognized
            condition = f"a condition on {shown(statement.key)}" if quoted else "a condition"
            context.report("bare-requirement", statement, f"{condition} {alone}")
        elif _EXPRESSIONS.match(statement.key) and (problem := unfinished(statement.value)):
            context.report("unfinished-expression", statement, f"{statement.key} {problem}")
    for statement in text.stray:
        if _BARE_CONDITION.match(statement.value):
            context.report("bare-requirement", statement, f"a condition {alone}")
        else:
            message = "this line is neither an assignment nor a command"
            context.report("submit-syntax", statement, message)


def _check_ifs(context: LintContext, text: Description) -> None:
    open_ifs = []
    for statement in text.statements:
        if not statement.directive or statement.key == "queue":
            continue
        if statement.key == "if":
            open_ifs.append(statement)
        elif not open_ifs:
            context.report(
                "unbalanced-if", statement, f"there is no if before this {statement.key}"
            )
        elif statement.key == "endif":
            open_ifs.pop()
    for statement in open_ifs:
        context.report("unbalanced-if", statement, "this if has no endif")


def _check_macros(context: LintContext, text: Description, nodes: list[Node]) -> None:
    """Macros that no node and no line sets.

    Those in capitals may be set by the configuration.
    """
    directives = [statement for statement in text.statements if statement.directive]
    queues = [statement for statement in directives if statement.key == "queue"]
    if text.unresolved or any(_ITEMS.search(statement.value) for statement in queues):
        return  # The queue line defines variables, or a file cannot be read.
    known = {statement.key for statement in text.statements} | _BUILT_IN
    for statement in directives:
        if statement.key != "queue":
            known |= {word.lower() for word in re.findall(r"\w+", statement.value)}
    undefined = {
        name: statement
        for statement in reversed(text.statements)
        if statement.file in text.recognized
        for name in _MACRO.findall(statement.value)
        if name.lower() not in known and not name.isupper()
    }
    if not undefined:
        return
    variables = {name.lower() for name in set().union(*(node.vars for node in nodes))}
    for name, statement in undefined.items():
        if name.lower() not in variables:
            message = f"$({shown(name)}) is set by no line here and by no VARS of its nodes"
            context.report("undefined-macro", statement, message)


def _check_gpus(context: LintContext, text: Description) -> None:
    """Requirements on GPUs without request_gpus."""
    if text.unresolved or text.last("request_gpus") is not None:
        return
    for statement in text.statements:
        in_requirements = statement.key == "requirements"
        if statement.key in _GPU_REQUESTS or (
            in_requirements and _GPU_ATTRIBUTES.search(statement.value)
        ):
            message = f"{shown(statement.key)} asks for a kind of GPU, and request_gpus is not set"
            context.report("gpus-not-requested", statement, message)
            return


def _check_mail(context: LintContext, text: Description, nodes: list[Node]) -> None:
    statement = text.last("notification")
    event = statement.value.strip().lower() if statement is not None else ""
    if statement is not None and len(nodes) > MAX_MAILS and event in ("always", "complete"):
        message = f"notification = {event} sends a mail for each of {len(nodes)} nodes"
        context.report("mail", statement, message)


def _check_logs(context: LintContext) -> None:
    """Trainings without a log, or with many logs."""
    for text, trainings in context.training_descriptions():
        statement = text.last("log", "userlog")
        logs = {node.log for node in trainings}
        names = [log for log in logs if log is not None]
        if statement is None:
            if None in logs:
                message = "the trainings described here write no log of their own"
                context.report("no-log", text, message)
        elif any("$(Cluster)" in log or "$(Process)" in log for log in names):
            context.report("log-per-job", statement, "each job writes a log of its own")
        elif len(names) > MAX_LOGS:
            context.report("log-per-job", statement, f"the trainings write {len(names)} logs")


# --- names that condor_submit does not know and ignores ---------------------------------------
# Sources: SUBMIT_KEY_… in submit_utils.h of HTCondor 25, and its manual page "condor_submit".

COMMANDS: Final = frozenset(
    """
    accounting_group accounting_group_user allow_arguments_v1 allow_environment_v1
    allowed_execute_duration allowed_job_duration append_files arc_application arc_data_staging
    arc_resources arc_rte arguments arguments2 aws_access_key_id_file aws_region
    aws_secret_access_key_file azure_admin_key azure_admin_username azure_auth_file azure_image
    azure_location azure_size batch_extra_submit_args batch_id batch_name batch_project
    batch_queue batch_runtime buffer_block_size buffer_files buffer_size checkpoint_destination
    checkpoint_exit_code cloud_label_names cluster common_input_files compress_files
    concurrency_limits concurrency_limits_expr container_image container_is_common
    container_service_names container_target_dir copy_to_spool core_size cron_day_of_month
    cron_day_of_week cron_hour cron_minute cron_month cron_prep_time cron_window cuda_version
    dag_node_name dagman_job_id dagman_log deferral_prep_time deferral_time deferral_window
    delegate_job_gsi_credentials_lifetime description disk_usage docker_image
    docker_network_type docker_override_entrypoint docker_pull_policy docker_send_credentials
    dont_encrypt_input_files dont_encrypt_output_files ec2_access_key_id ec2_ami_id
    ec2_availability_zone ec2_block_device_mapping ec2_ebs_volumes ec2_elastic_ip
    ec2_iam_profile_arn ec2_iam_profile_name ec2_instance_type ec2_key_pair_file ec2_keyp_air
    ec2_keypair ec2_keypair_file ec2_parameter_names ec2_secret_access_key ec2_security_groups
    ec2_security_ids ec2_spot_price ec2_tag_names ec2_user_data ec2_user_data_file ec2_vpc_ip
    ec2_vpc_subnet email_attributes encrypt_execute_directory encrypt_input_files
    encrypt_output_files env environment environment2 erase_output_and_error_on_restart error
    executable exit_requirements fetch_files file_remaps gce_account gce_auth_file gce_image
    gce_json_file gce_machine_type gce_metadata gce_metadata_file gce_preemptible get_env getenv
    gpus_maximum_capability gpus_minimum_capability gpus_minimum_memory gpus_minimum_runtime
    grid_resource gs_access_key_id_file gs_secret_access_key_file hold hold_kill_sig image_size
    initial_dir initialdir input interactive_args interactive_executable iterate jar_files
    java_vm_args java_vm_arguments java_vm_arguments2 job_ad_information_attrs job_iwd
    job_lease_duration job_machine_attrs job_machine_attrs_history_length job_max_vacate_time
    jobset keep_claim_idle kill_sig kill_sig_timeout leave_in_queue load_profile local_files log
    log_xml machine_count manifest manifest_dir match_list_length materialize_max_idle max_idle
    max_job_retirement_time max_materialize max_retries max_transfer_input_mb
    max_transfer_output_mb memory_usage mount_under_scratch next_job_start_delay nice_user
    node_count nodecount noop_job noop_job_exit_code noop_job_exit_signal notification
    notify_user on_evict_checks on_exit_hold on_exit_hold_reason on_exit_hold_subcode
    on_exit_remove output output_destination output_directory parallel_script_shadow
    parallel_script_starter periodic_hold periodic_hold_reason periodic_hold_subcode
    periodic_release periodic_remove periodic_vacate preferences preserve_relative_paths
    primary_unix_group prio priority process project_name public_input_files rank
    remote_initialdir remove_kill_sig rendezvousdir request_cpus request_disk request_gpus
    request_memory require_gpus requirements retry_request_disk retry_request_memory
    retry_request_memory_increase retry_request_memory_max retry_until run_as_owner
    s3_access_key_id_file s3_secret_access_key_file scitokens_file send_credential shell
    should_transfer_files skip_filechecks skip_if_dataflow stack_size starter_debug starter_log
    stderr stdin stdout stream_error stream_input stream_output submit_allow_duplicate_matches
    submit_event_notes submit_event_notes_attrs submit_event_user_notes submit_fail_empty_fields
    submit_fail_empty_matches submit_match_directories submit_warn_duplicate_matches
    submit_warn_empty_fields submit_warn_empty_matches success_exit_code suspend_job_at_exec
    tool_daemon_args tool_daemon_arguments tool_daemon_arguments2 tool_daemon_cmd
    tool_daemon_error tool_daemon_input tool_daemon_output transfer_checkpoint_files
    transfer_common_input transfer_container transfer_error transfer_executable transfer_input
    transfer_input_files transfer_output transfer_output_files transfer_output_remaps
    transfer_plugins ulog_execute_attrs universe use_oauth_services use_scitoken use_scitokens
    use_x509userproxy vm_checkpoint vm_disk vm_macaddr vm_memory vm_networking
    vm_networking_type vm_no_output_vm vm_type vm_vcpus vm_vnc want_ads want_graceful_removal
    want_io_proxy want_job_networking wantnametag when_to_transfer_output x509userproxy
    xen_initrd xen_kernel xen_kernel_params xen_root
    """.split()
)
"""Commands of submit files."""

_WITHOUT_UNDERSCORES: Final = frozenset(name.replace("_", "") for name in COMMANDS).union(
    """
    acctgroup acctgroupuser args cmd dagmannodeslog err in isnoopjob iwd jobbatchid jobbatchname
    jobdescription jobmaxretries jobnotification jobprio jobsetname jobstarterdebug
    jobstarterlog jobsuccessexitcode jobuniverse lastmatchlistlength leavejobinqueue
    manifestdesired maxhosts minhosts onexitholdcheck onexitremovecheck out periodicholdcheck
    periodicreleasecheck periodicremovecheck remoteiwd rmkillsig streamerr streamin streamout
    successcheckpointexitcode transfererr transferin transferout userlog
    userlogexecuteeventattrs userlogusexml
    """.split()
)
"""Commands without underscores, and job attributes (``TransferInputFiles``)."""

_PREFIXES: Final = tuple(
    """
    request_ require_ remote_ submit_ transform_body_ ec2_tag_ cloud_label_ ec2_parameter_ allow_
    amazon_ boinc_ cream_ deltacloud_ globus grid_ keystore_ kvm_ myproxy nordugrid_ unicore_ vm_
    vmware_ want_remote_ xen_
    """.split()
)
_PARTS: Final = (".", "_oauth_permissions", "_oauth_resource", "_container_port")
"""Prefixes and parts of names that HTCondor accepts in any form, or once accepted."""

_RESOURCE: Final = re.compile(r"(request|require)_(\w+)")

_REFERENCE: Final = re.compile(r"\$\w*\(([^()]*)")
_WORD: Final = re.compile(r"[a-z_][\w.]*", re.IGNORECASE)

SIMILARITY: Final = 0.8
"""Minimum similarity (0–1) to a known name to be considered a misspelling."""


def _check_names(context: LintContext) -> None:
    """Report names that are neither a command nor a macro used in the DAG."""
    texts = [text for text, _ in context.descriptions()]
    used = set(_macro_names(context, texts))
    for text in texts:
        for statement in text.statements if not text.unresolved else ():
            if statement.directive or statement.value.startswith(COMPARISON_STARTS):
                continue
            if message := _problem(statement.key, used, statement.file in text.recognized):
                context.report("submit-command", statement, message)


def _macro_names(context: LintContext, texts: Iterable[Description]) -> Iterator[str]:
    """The names that descriptions or VARS of the DAG use as macros, in lower case."""
    for text in texts:
        for statement in (*text.statements, *text.stray):
            if statement.directive:
                yield from map(str.lower, _WORD.findall(statement.value))
            else:
                yield from _referenced_names(statement.value)
    for entry in context.all_commands():
        if isinstance(entry.command, VarsCommand):
            for _, value in entry.command.pairs:
                yield from _referenced_names(value)


def _referenced_names(value: str) -> Iterator[str]:
    """The names in ``$(name)``, ``$(name:default)``, ``$INT(name,%d)`` and the like."""
    if "$" in value:
        for content in _REFERENCE.findall(value):
            yield from map(str.lower, _WORD.findall(content))


def _problem(key: str, used: set[str], quoted: bool) -> str | None:
    """What is wrong with the key, or None.

    ``quoted``: the name may be quoted; False if its file may be any file.
    """
    if key in used or key in COMMANDS:
        return None
    if resource := _RESOURCE.fullmatch(key):
        # The pool may have any resource: only names like the usual ones are misspelt.
        similar = nearest(resource[2], ("cpus", "memory", "disk", "gpus"), SIMILARITY)
        if similar is None:
            return None
        similar = f"{resource[1]}_{similar}"
    elif (
        key.replace("_", "") in _WITHOUT_UNDERSCORES
        or key.startswith(_PREFIXES)
        or any(part in key for part in _PARTS)
    ):
        return None
    else:
        similar = nearest(key, sorted(COMMANDS), SIMILARITY)
    name = shown(key) if quoted or resource else "this name"
    meaning = f": is {similar} meant?" if similar else ", and no line uses it as a macro"
    return f"{name} is not a command of condor_submit{meaning}"
