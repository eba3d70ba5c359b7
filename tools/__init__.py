"""Programs for those who change gpudoctor; they are not installed."""
