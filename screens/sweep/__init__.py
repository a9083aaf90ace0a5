"""A sweep as a grid."""
