"""What observes, decides, repairs and audits: who may do what, acts and their record, proposals, drift."""
