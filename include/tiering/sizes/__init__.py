"""Remote log sizes, lags and costs."""
