# Serving image for NVIDIA GPUs. Build from the root of the repository (docs/guides/deployment.md):
#   docker build -f operations/docker/cuda.Dockerfile -t graphbox:cuda .
# The CUDA version of the base is the one that the pinned onnxruntime-gpu was built for: 13, with cuDNN 9.

FROM node:22.20.0-bookworm-slim AS web
WORKDIR /src/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY web ./
RUN npm run build

FROM ubuntu:24.04 AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Versions of packages are those of the release that the base image pins.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ libnghttp2-dev liburing-dev python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
ENV PATH=/opt/tools/bin:$PATH
RUN python3 -m venv /opt/tools \
 && pip install --no-cache-dir --constraint constraints.txt build cmake nanobind ninja scikit-build-core
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY graphbox graphbox
COPY compress compress
COPY deploy deploy
COPY server server
COPY --from=web /src/server/static server/static
COPY --from=web /src/deploy/browser_page deploy/browser_page
RUN python -m build --no-isolation --outdir /dist
# Both distributions of ONNX Runtime install the same folder: one has to own it.
RUN python3 -m venv --without-pip /opt/graphbox \
 && export PIP_PYTHON=/opt/graphbox/bin/python PIP_NO_CACHE_DIR=1 \
 && set -- /dist/*.whl \
 && pip install --constraint constraints.txt "$1[ann]" \
 && pip uninstall --yes onnxruntime \
 && version=$(sed -n 's/^onnxruntime==//p' constraints.txt) \
 && pip install --constraint constraints.txt "onnxruntime-gpu==$version"

FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04
LABEL org.opencontainers.image.title="graphbox" \
      org.opencontainers.image.description="Serves embeddings and graph neural networks over KServe v2, gRPC and REST, on NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0"
# libnghttp2 is for gRPC.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libnghttp2-14 python3 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 graphbox \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin graphbox \
 && install --directory --owner=10001 --group=10001 --mode=0750 /workspace
COPY --from=build /opt/graphbox /opt/graphbox
# The root may be read-only: only /workspace and /tmp are written.
ENV PATH=/opt/graphbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    GRAPHBOX_PACKAGES=/tmp/graphbox-packages
VOLUME ["/workspace"]
WORKDIR /workspace
EXPOSE 8710 8711
# A number: Kubernetes cannot check that a name is not root.
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8710/healthz/live', timeout=2)"]
ENTRYPOINT ["graphbox"]
CMD ["serve", "--workspace=/workspace", "--host=0.0.0.0", "--port=8710", "--grpc-port=8711"]
