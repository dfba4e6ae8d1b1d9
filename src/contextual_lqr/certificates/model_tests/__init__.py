"""Do the fleet's own data contradict the model, in what, and what may that cost?"""
