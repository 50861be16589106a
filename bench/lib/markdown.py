def update(run):
    pass
