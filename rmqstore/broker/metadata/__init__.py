"""The metadata of a broker: topics, groups, offsets, and how a group of brokers shares them."""
