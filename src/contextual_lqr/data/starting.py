"""The fleet.toml that `contextual-lqr new` writes: a cart, with every field explained."""

STARTING_FILE = """\
# A fleet: machines of one kind, with differences that are known (a mass, a length).
# Every machine obeys  x' = A x + B u + noise,  [A, B] = Theta G(context),
# with one unknown matrix Theta for all of them. Change everything below to your fleet's.

[states] # in this order; each "unit", or { unit, low, high }: rows of logs beyond are set aside
position = "m"
velocity = { unit = "m/s", low = -100.0, high = 100.0 }
# one = { constant = true } # always 1, need not be logged; for offsets, and for a target

[inputs]
force = { unit = "N", low = -50.0, high = 50.0 }

[contexts] # what is known of a machine, and the range in which machines of this fleet lie
mass = { unit = "kg", low = 0.5, high = 5.0 }

[context_map]
# Which quantities enter the dynamics. [A, B] is the sum of an unknown matrix times each feature.
# Numbers, names, pi, + - * / **, parentheses, sqrt exp log sin cos tan tanh abs.
kind = "features"
features = ["1", "1/mass"]
# Or A = Theta1 C and B = Theta2 D, with C and D of numbers and expressions:
# kind = "block"
# C = [[1, 0], [0, 1]]
# D = [["1/mass"]]

[known] # equations that need not be learnt: the next value, linear in states and inputs
position = "position + 0.1 * velocity"

[task]
horizon = 30                            # states of an episode; it has one input fewer
start = { position = 1.0 }              # the others are 0; or a list of all

[cost] # the sum over the episode of (x - target)' Q (x - target) + u' R u
Q = { position = 1.0, velocity = 0.1 }  # a diagonal by name or as a list, or a matrix of rows
R = [0.01]                              # every input must cost something
# final_Q = { position = 10.0 }         # for the last state, if not Q
# target = "path.csv"                   # a column a state, a row a step; needs a constant state

[learning]
noise_level = 0.01      # roughly, the standard deviation of a step's noise
# regularisation = 1e-4 # the ridge; noise_level squared says: entries of Theta are about 1
"""
