"""Sweep files: a workflow that asks for runs by GEN SUBDAG, and a template of each run.

::

    # workflow.dag: all commands of a DAG file, and these. One line of values for each variable:
    # a range, or a list, where "as" gives {b_label}. Also "from zip", "from product".
    GEN SUBDAG flow train.subdag a, b from
      0.01 to 0.03 by 0.01
      adam as A, sgd, "a, b"
    # A group means the first nodes of its runs behind CHILD, their last ones behind PARENT.
    JOB init init.sub
    PARENT init CHILD flow
    # Nodes, runs, groups, regions, patterns. Of variables those of a node count before those of
    # its run or group, these before those of a region, these before those of ALL_NODES.
    REGION late { flow0 flow*-train_epoch1 }
    VARS late lr={a}

    # train.subdag: one run. {run} is flow0, flow1, … (flow00, … of more than ten).
    PARENT {run}-train_epoch0 CHILD {run}-train_epoch1 {run}-eval_epoch1
    VARS {run}-train_epoch0 epoch=1 rate={a}
    VARS {run} optimizer={b}
    # Nodes called …train_epoch0 or …eval_epoch1 run the chosen templates; all others need a JOB.
    JOB {run}-pack pack.sub
    PARENT {run}-train_epoch1 CHILD {run}-pack

"A to B by S" is decimal arithmetic: A, A + S, …, with B where a whole number of steps reaches it.
Equally many values are zipped (the first of each, the second of each, …) unless "product" makes
each with each, the last variable fastest; of unequal numbers one of the words must be given.
A variable has an effect where a submit file says $(a), or a template's parameter is called so.
{a}, {a_label}, {run}, {index} (from 0) and {uuid} are filled in; $(…) is HTCondor's; {{a}} is {a}.
"""

SYNTAX: str = (__doc__ or "").replace("::\n\n", "").strip()
"""The syntax of sweep files, as help text."""
