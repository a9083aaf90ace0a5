"""The terminal layer: differential rendering, flow control, input decoding."""
