"""The loop beside the job: takes in what the engine reports, decides, and makes it so."""
