"""Ways in over HTTP: the front, the hot routes and the control plane."""
