"""Types and shapes are checked at run time in the tests; an int will do for a float."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
