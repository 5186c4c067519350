"""Files of pairs and sentences that are scored and encoded as streams: one file, or many on one machine or on Ray."""
