"""The drop-in against PyTorch over the suite's shapes: the plain module, and whatever faster forms the installed PyTorch
offers, interleaved in one process, each judged under the contract.

command.py reads the arguments, session.py takes one shape from its input to its figures, clock.py times, peers/ holds one
file per kind of rival, page.py and text.py show what came out. It needs PyTorch and nothing else.
"""
