# syntax=docker/dockerfile:1
# SBERT Lab in a container: docker build -t sbert-lab . && docker run -p 127.0.0.1:7860:7860 -v sbert-home:/home/sbert/data sbert-lab
# For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130, and docker run --gpus all
ARG BASE=python:3.12-slim-bookworm
# hadolint ignore=DL3006
FROM ${BASE} AS wheel
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md CHANGELOG.md LICENSE THIRD_PARTY.md ./
COPY sbert_lab sbert_lab
COPY training training
COPY sbert_app sbert_app
COPY assets assets
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# hadolint ignore=DL3006
FROM ${BASE}
# Where torch comes from: its builds for the CPU are a quarter of those with CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=app
# Names of models to bake into the image, such as "all-MiniLM-L6-v2"; empty: they are fetched at the first start.
ARG MODELS=""
ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    SBERT_HOME=/home/sbert/data \
    SBERT_HOST=0.0.0.0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN useradd --create-home --uid 1000 sbert && mkdir -p "$SBERT_HOME" && chown sbert:sbert "$SBERT_HOME"
COPY --from=wheel /wheels /wheels
COPY requirements.lock /wheels/
# hadolint ignore=DL3013
RUN python -m pip install --no-cache-dir --constraint /wheels/requirements.lock --index-url "$TORCH_INDEX" torch \
    && python -m pip install --no-cache-dir --constraint /wheels/requirements.lock "$(echo /wheels/*.whl)[${EXTRAS}]" \
    && rm -rf /wheels
USER 1000
WORKDIR /home/sbert
# The first map need not wait for it. It runs on any processor of this architecture, and a new volume gets a copy.
RUN python -c "from sbert_app.services.maps.projection import compile_umap; compile_umap()"
RUN for model in $MODELS; do \
      echo "A sentence." | sbert-lab encode - /tmp/model.npy --model "$model" && rm /tmp/model.npy || exit 1; \
    done
VOLUME /home/sbert/data
EXPOSE 7860
# The model is fetched at the first start: until then /health answers that it is missing.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5m --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('SBERT_PORT', os.environ.get('PORT', '7860')) + '/health')"]
ENTRYPOINT ["sbert-lab"]
CMD ["serve"]
