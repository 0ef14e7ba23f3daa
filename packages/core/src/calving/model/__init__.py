"""Values shared by every part of calving. No I/O, no clock, no randomness."""
