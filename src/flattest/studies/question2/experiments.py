"""What in 1-SAM memorizes? Its steps as they are, with the activation pattern kept, and flows.

    flattest run 'question2/*'           minutes on two cores
    flattest run 'question2/*' --full    the paper's epochs; half a minute to two per seed for most
                                         panels, ten minutes for 1-SAM with three layers, an hour
                                         with walls, hours for flows with Sim-BN or three layers

The expectations at full scale are predictions: they were committed before the runs, which a test
compares with the commit that the runs name. What a trial had shown before is in the notes.
"""

from flattest.studies.question2 import decides, judged, limits, ways

EXPERIMENTS = (*ways.EXPERIMENTS, *limits.EXPERIMENTS, *decides.EXPERIMENTS, *judged.EXPERIMENTS)
