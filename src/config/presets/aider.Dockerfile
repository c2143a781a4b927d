# Aider for sandpen: `sandpen build --agent aider`. Runs as any uid: nothing in it needs to be writable.
FROM docker.io/library/python:3.12-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git openssh-client ripgrep \
 && rm -rf /var/lib/apt/lists/*

# Another version: --build-arg VERSION=1.2.3
ARG VERSION=0.86.2
RUN pip install --no-cache-dir --root-user-action=ignore "aider-chat==${VERSION}" \
 && aider --version

# A new version comes with a new image; the user inside could not install one.
ENV AIDER_CHECK_UPDATE=false

CMD ["bash"]
