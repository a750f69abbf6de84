"""What was found, verified and measured, kept so that it is never done twice."""
