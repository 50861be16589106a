#!/usr/bin/env python3
"""Trains the model of the folder digits-svm, which the demonstration serves: train.py FILE

A support vector machine learns three quarters of scikit-learn's handwritten digits. The last quarter is that of
examples/make_demo_models.py: the rows of examples/data/digits.json are from it. The file is not kept in the repository, since
another version of scikit-learn could not read it.
"""

import sys

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

SEED = 20  # as in make_demo_models.py

images, labels = load_digits(return_X_y=True)
train_x, _, train_y, _ = train_test_split(images, labels, test_size=0.25, random_state=SEED, stratify=labels)
joblib.dump(SVC(gamma=0.001).fit(train_x, train_y), sys.argv[1])
