"""Models fitted to chosen sites: reconstructors, predictors, prediction intervals."""
