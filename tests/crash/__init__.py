"""The crash test: load with a recorded history, kills, and the check of that history.

history.py   what was sent and answered, and whether one order of it all explains it
workload.py  the clients: registers, counters, life cycles
killer.py    who is killed, and when
run.py       rounds of all three, and the summary
"""
