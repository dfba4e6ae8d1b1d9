"""The control problem: systems, costs and policies; their solution, roll-outs and costs."""
