"""`rmqstore demo`: the main job on real input, from a broker's directory to replicas and Spark."""
