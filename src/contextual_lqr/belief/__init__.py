"""What is believed: the decoder Θ of a fleet, one machine of it, and what is plausible."""
