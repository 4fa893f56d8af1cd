# perdure with CPU computation. The command is the demo; its results are in /results:
#
#   docker build -t perdure .
#   docker run --rm --volume perdure-results:/results perdure
#   docker run --rm --volume perdure-results:/results perdure perdure audit /results
#
# PIP_OPTIONS are options of pip for the installation of torch. Without them, pip takes the build for CUDA on Linux, which is
# several GB larger. PyTorch's page "Get started" has the options for the CPU build:
#
#   docker build --build-arg PIP_OPTIONS="OPTIONS" -t perdure .
FROM python:3.11-slim

ARG PIP_OPTIONS=""
ARG TORCH="torch==2.13.0"

ENV OMP_NUM_THREADS=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1

WORKDIR /build
# hadolint ignore=DL3013,SC2086
RUN python -m pip install ${PIP_OPTIONS} "${TORCH}"
COPY LICENSE README.md constraints.txt pyproject.toml ./
COPY tools/readme_hook.py tools/
COPY src src
RUN python -m pip install --constraint constraints.txt . && rm -rf /build/*

RUN useradd --create-home --uid 1000 perdure \
    && mkdir /results \
    && chown perdure /results
USER 1000
WORKDIR /results
VOLUME /results
CMD ["perdure", "demo", "--out", "/results"]
