"""From a measurement to the next plan, and the record that is written with it."""
