"""What the parts of `gpudoctor compat` look at and judge; gpudoctor/compat_run.py puts them together."""
