#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the .npy files of this folder: the images, the weights of a small network and NumPy's own predictions.

usage: train.py DIGITS.CSV.GZ       (sklearn/datasets/data/digits.csv.gz of the scikit-learn wheel; see README.md)

A multilayer perceptron 64-128-10 with ReLU is trained on the first two thirds (1,198 digits) with AdamW, small affine
distortions, dropout and smoothed labels. Needs NumPy only. The seed is fixed; another BLAS may round sums otherwise and
so end with weights that differ in the last digits."""
import sys
import numpy as np

N_TRAIN, HIDDEN, CLASSES, EPOCHS, BATCH = 1198, 128, 10, 300, 64
RATE, DECAY, DROP, SMOOTH, WARP = 2e-3, 1e-2, 0.3, 0.1, 0.2


def distort(images, rng):
    """Each 8x8 image moved by up to one pixel and stretched, turned or sheared a little; bilinear, black outside."""
    n = len(images)
    padded = np.zeros((n, 10, 10))
    padded[:, 1:9, 1:9] = images.reshape(n, 8, 8)
    grid = np.mgrid[0:8, 0:8].reshape(2, 64) - 3.5
    matrix = np.eye(2) + rng.uniform(-WARP, WARP, (n, 2, 2))
    at = np.clip(matrix @ grid + rng.uniform(-1, 1, (n, 2, 1)) + 4.5, 0, 8.999)
    low = np.floor(at).astype(int)
    (r, c), (fr, fc), i = low.swapaxes(0, 1), (at - low).swapaxes(0, 1), np.arange(n)[:, None]
    return (padded[i, r, c] * (1 - fr) * (1 - fc) + padded[i, r + 1, c] * fr * (1 - fc)
            + padded[i, r, c + 1] * (1 - fr) * fc + padded[i, r + 1, c + 1] * fr * fc)


def train(x, y):
    rng = np.random.default_rng(0)
    p = [rng.normal(0, np.sqrt(2 / 64), (64, HIDDEN)), np.zeros(HIDDEN),
         rng.normal(0, np.sqrt(1 / HIDDEN), (HIDDEN, CLASSES)), np.zeros(CLASSES)]
    m, v, step = [0 * a for a in p], [0 * a for a in p], 0
    target = np.eye(CLASSES)[y] * (1 - SMOOTH) + SMOOTH / CLASSES
    for epoch in range(EPOCHS):
        rate = RATE * (0.5 + 0.5 * np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(x))
        for begin in range(0, len(x), BATCH):
            k = order[begin:begin + BATCH]
            a = distort(x[k], rng)
            s = a @ p[0] + p[1]
            keep = (rng.random(s.shape) >= DROP) / (1 - DROP)
            h = np.maximum(s, 0) * keep
            z = h @ p[2] + p[3]
            z = np.exp(z - z.max(1, keepdims=True))
            d = (z / z.sum(1, keepdims=True) - target[k]) / len(k)
            ds = d @ p[2].T * keep * (s > 0)
            step += 1
            for j, g in enumerate((a.T @ ds, ds.sum(0), h.T @ d, d.sum(0))):
                m[j] = 0.9 * m[j] + 0.1 * g
                v[j] = 0.999 * v[j] + 0.001 * g * g
                adam = m[j] / (1 - 0.9**step) / (np.sqrt(v[j] / (1 - 0.999**step)) + 1e-8)
                p[j] = p[j] - rate * (adam + DECAY * p[j])
    return [a.astype(np.float32) for a in p]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    table = np.loadtxt(sys.argv[1], delimiter=',')
    images, labels = (table[:, :64] / 16).astype(np.float32), table[:, 64].astype(np.int64)
    w1, b1, w2, b2 = train(images[:N_TRAIN].astype(np.float64), labels[:N_TRAIN])
    logits = np.maximum(images @ w1 + b1, 0) @ w2 + b2
    expected = logits.argmax(1).astype(np.int64)
    two = np.sort(logits, 1)[:, -2:]
    print(f'accuracy: {np.mean((expected == labels)[:N_TRAIN]):.4f} on the first two thirds, '
          f'{np.mean((expected == labels)[N_TRAIN:]):.4f} on the rest; '
          f'least distance of the two largest logits: {np.min(two[:, 1] - two[:, 0]):.2e}')
    for name, value in dict(images=images, labels=labels, expected=expected, w1=w1, b1=b1, w2=w2, b2=b2).items():
        np.save(name + '.npy', value)


if __name__ == '__main__':
    main()
