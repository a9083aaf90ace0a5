"""Sweep files: a workflow that requests runs with GEN SUBDAG, and a template of a run.

::

    # workflow.dag: all commands of a DAG file, and these. One line of values for each variable:
    # a range, or a list, where "as" gives {b_label}. Also "from zip", "from product".
    GEN SUBDAG flow train.subdag a, b from
      0.01 to 0.03 by 0.01
      adam as A, sgd, "a, b"
    # A group stands for the first nodes of its runs after CHILD, their last ones after PARENT.
    JOB init init.sub
    PARENT init CHILD flow
    # Nodes, runs, groups, regions, patterns. Variables of a node override those of its run or
    # group, these override those of a region, and these override those of ALL_NODES.
    REGION late { flow0 flow*-train_epoch1 }
    VARS late lr={a}

    # train.subdag: one run. {run} is flow0, flow1, … (flow00, … for more than ten).
    PARENT {run}-train_epoch0 CHILD {run}-train_epoch1 {run}-eval_epoch1
    VARS {run}-train_epoch0 epoch=1 rate={a}
    VARS {run} optimizer={b}
    # Nodes called …train_epoch0 or …eval_epoch1 run the chosen templates; all others need a JOB.
    JOB {run}-pack pack.sub
    PARENT {run}-train_epoch1 CHILD {run}-pack

"A to B by S" is decimal arithmetic: A, A + S, …, with B if a whole number of steps reaches it.
Equal numbers of values are zipped (the first of each, the second of each, …) unless "product"
combines each with each, the last variable fastest; unequal numbers require one of the words.
A variable has an effect if a submit file contains $(a), or a template has a parameter a.
{a}, {a_label}, {run}, {index} (from 0) and {uuid} are filled in; $(…) is HTCondor's; {{a}} is {a}.
"""

SYNTAX: str = (__doc__ or "").replace("::\n\n", "").strip()
"""The syntax of sweep files, as help text."""
