# Serving image for processors. Build from the root of the repository (docs/guides/deployment.md):
#   docker build -f operations/docker/cpu.Dockerfile -t graphbox:cpu .

FROM node:22.20.0-bookworm-slim AS web
WORKDIR /src/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY web ./
RUN npm run build

FROM python:3.11.14-slim-bookworm AS build
# Versions of packages are those of the release that the base image pins.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ libnghttp2-dev liburing-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --constraint constraints.txt build cmake nanobind ninja scikit-build-core
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY graphbox graphbox
COPY compress compress
COPY deploy deploy
COPY server server
COPY --from=web /src/server/static server/static
COPY --from=web /src/deploy/browser_page deploy/browser_page
RUN python -m build --no-isolation --outdir /dist
RUN python -m venv --without-pip /opt/graphbox \
 && set -- /dist/*.whl \
 && pip --python /opt/graphbox/bin/python install --no-cache-dir --constraint constraints.txt "$1[ann]"

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="graphbox" \
      org.opencontainers.image.description="Serves embeddings and graph neural networks over KServe v2, gRPC and REST" \
      org.opencontainers.image.licenses="Apache-2.0"
# libnghttp2 is for gRPC.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libnghttp2-14 \
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
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8710/healthz/live', timeout=2)"]
ENTRYPOINT ["graphbox"]
CMD ["serve", "--workspace=/workspace", "--host=0.0.0.0", "--port=8710", "--grpc-port=8711"]
