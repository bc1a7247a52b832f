"""Put a replica group through crashes, partitions and elections, and repeat any run by its seed."""

from rmqstore import sim
from rmqstore.sim import Faults, World

# Everything that happens follows from the seed: the group's settings, its users, what goes wrong.
outcome = sim.run(12)
assert outcome.is_sound, outcome.violation
assert outcome == sim.run(12)
print(f"{outcome.acknowledged} of {outcome.puts} puts acknowledged, none of them lost")

# The same group without faults, and with a choice of them. Weights count against each other.
quiet = sim.run(12, faults=Faults.none())
print(f"quiet: {quiet.epochs} epoch")
rough = Faults(mean_gap_ms=200, worst_moments=0.01, power_loss=0, blackout=0)
assert sim.run(12, faults=rough, replicas=5, steps=50).is_sound

# A trace lists the events of a run; `python -m rmqstore.sim 12` prints it.
story = sim.run(12, is_traced=True).trace
print(f"{sum(' is master' in line for line in story)} times a replica took office")

# A world can be looked at when it is over: all logs are one, message by message.
world = World(12)
world.run()
logs = [
    list(each.log.records(each.log.start_offset, each.log.end_offset))
    for each in world.replicas.values()
]
shortest = min(map(len, logs))
assert all(log[-shortest:] == logs[0][-shortest:] for log in logs)
print(f"{len(logs)} replicas hold the same last {shortest} messages")
