"""Words that act when they are taken for keys."""

from __future__ import annotations

WORDS = """
Age Aim Air All Any Apply Array Asymmetry
Calibrate Canyon Capacity Carry Category City Copy Cycle
Daily Day Decay Density Destroy Diary Dynamics Dysfunction
Early Easy Economy Efficiency Embody Energy Entry Enzymology
Factory Family Fantasy Ferry Foundry Frequency Fuzzy Fly
Galaxy Gateway Geometry Glory Gravity Gray Greedy Guy
Happy Harmony Heavily Heavy History Holiday Hydrogen Hypothesis
Identify Immunology Industry Infinity Inquiry Intensity Inventory Ivory
Jelly Jewelry Jitney Jolly Journey Jury Justify Juicy
Key Keystone Kinematically Kindly Kitty Knotty Kidney Kyoto
Lady Layer Library Likely Linearly Loyalty Lysine Lysozyme
Majority Many Mary Memory Midway Monkey Mystery Myosin
Napkin Nearby Necessary Nobody Normally Novelty Nylon Nymph
Obey Odyssey Only Opacity Orderly Organically Oxygen Oyster
Parity Party Penalty Physics Policy Polymer Pretty Pyruvate
Rally Ray Ready Really Recovery Relay Remedy Rhythm
Safety Salary Sanity Security Seventy Society Stay Symmetry
Tally Theory Thirty Today Toy Tragedy Type Tyrosine
Ugly Unity University Unify Usually Utility Unstably Unready
Valley Vanity Variety Very Vicinity Victory Voyage Validity
Wary Way Wealthy Weary Weekly Worry Windy Wyoming
Xanthophyll Xenolith Xenon Xeric Xylem Xylene Xylophone Xystus
Yard Yearly Yeast Yes Yesterday Yield Young Yttrium
Zany Zealously Zebra Zero Zesty Zinc Zoology Zygote
Hybrid Rigidity Dairy Kinetically Zygosity Xylitol Viability Potency
""".split()  # noqa: SIM905 (a table, not a list of 200 quoted words)
"""Each begins with a letter that acts on some screen, most have a y behind it."""
