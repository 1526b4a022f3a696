# Two images: `--target operator` watches BalancedStreams, `--target spark` is what drivers, executors
# and sidecars run. The image of an application needs the first and the last line, and those between
# them if it needs more Python packages:
#
#     FROM balancedstream-spark:0.2.0
#     USER root
#     RUN pip install geohash2
#     USER 10001:10001
#     COPY app.py /app/
#
# Dependencies and the project's own code are separate layers, so that after a change of the code no
# node has to pull Spark's 280 jars again.

# A tag changes its meaning with each of Debian's updates; a release gives a digest instead.
ARG BASE=debian:bookworm-slim
# The Spark of the second image, one of those with a lock in docker/locks.
ARG SPARK=4.3
# That of the labels.
ARG VERSION=0.2.0
FROM ${BASE} AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 tini \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 balancedstream \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin balancedstream
# The root file system of a pod is read-only: what programs write to the home folder goes to /tmp.
ENV HOME=/tmp \
    LANG=C.UTF-8 \
    PATH=/opt/balancedstream/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1
WORKDIR /tmp


# The next stages build; none of their tools ends up in an image.
FROM base AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
# pip has an environment of its own, so that the one copied into the images needs none.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/balancedstream
WORKDIR /build
# pip takes only what the locks name by its hash (`make lock` writes them). A package without a wheel
# is built with what is here, because an isolated build would fetch its tools without hashes.
COPY docker/locks/build.txt ./
RUN /opt/pip/bin/pip install --require-hashes --requirement build.txt
ENV PIP_NO_DEPS=1

FROM build AS operator-dependencies
COPY docker/locks/operator.txt ./
RUN /opt/pip/bin/pip wheel --require-hashes --no-build-isolation --wheel-dir wheels --requirement operator.txt \
    && /opt/pip/bin/pip --python /opt/balancedstream/bin/python install --no-index wheels/*.whl

# This one keeps pip, so that applications can add the packages that they need.
FROM build AS spark-dependencies
ARG SPARK
COPY docker/locks/spark-${SPARK}.txt spark.txt
RUN /opt/pip/bin/pip wheel --require-hashes --no-build-isolation --wheel-dir wheels --requirement spark.txt \
    && /opt/pip/bin/pip --python /opt/balancedstream/bin/python install --no-index wheels/*.whl \
    && /opt/balancedstream/bin/python -m ensurepip --default-pip \
    && /opt/balancedstream/bin/pip uninstall --yes setuptools

FROM build AS package
# The wheel has a jar, which is compiled with it. The Java package is as in the stage `spark`.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jdk-headless \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY runtime runtime
COPY spark-plugin spark-plugin
RUN BALANCEDSTREAM_JAR_REQUIRED=1 \
    /opt/pip/bin/pip wheel --no-index --no-build-isolation --wheel-dir wheels . \
    && /opt/pip/bin/pip --python /opt/balancedstream/bin/python install --no-index --root /package wheels/*.whl


FROM base AS operator
ARG VERSION
LABEL org.opencontainers.image.title="BalancedStream operator" \
      org.opencontainers.image.description="Balances and scales the Spark streams that BalancedStream resources describe" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/balancedstream/balancedstream"
COPY --from=operator-dependencies /opt/balancedstream /opt/balancedstream
COPY --from=package /package/ /
# Python does not search the working directory for modules: a folder named `operator` there would
# hide the standard library's module. And what a large answer of Prometheus takes goes back to the
# node: each thread would keep as much, because glibc raises this limit, its default, by itself.
ENV MALLOC_MMAP_THRESHOLD_=131072 \
    PYTHONSAFEPATH=1
USER 10001:10001
# /healthz, /metrics
EXPOSE 8080 8081
ENTRYPOINT ["/usr/bin/tini", "--", "balancedstream-operator"]


FROM base AS spark
# The Java package links its manual pages into a folder that slim images do not have.
# libnss-wrapper names a user that is not in /etc/passwd; see the entrypoint.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends libnss-wrapper openjdk-17-jre-headless \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /tmp/hsperfdata_root \
    && ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java
COPY --from=spark-dependencies /opt/balancedstream /opt/balancedstream
COPY docker/entrypoint.sh docker/decom.sh /opt/
COPY --from=package /package/ /
ENV JAVA_HOME=/opt/java \
    PIP_NO_CACHE_DIR=1 \
    PYSPARK_PYTHON=/opt/balancedstream/bin/python3 \
    SPARK_HOME=/opt/balancedstream/lib/python3.11/site-packages/pyspark
# Any application has the plugin on its class path; spark.plugins turns it on.
RUN ln -s ../../balancedstream/spark-plugin.jar "$SPARK_HOME/jars/"
# An executor's JVM maps Spark's classes from this archive; see the entrypoint.
COPY docker/archive_classes.py /opt/
RUN SPARK_LOCAL_IP=127.0.0.1 "$PYSPARK_PYTHON" /opt/archive_classes.py /opt/spark.jsa && rm -rf /tmp/*
# After the large layers, so that a new version does not rebuild them.
ARG VERSION
LABEL org.opencontainers.image.title="BalancedStream for Spark" \
      org.opencontainers.image.description="Spark with BalancedStream: the image of drivers and executors" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/balancedstream/balancedstream"
USER 10001:10001
# /metrics of a driver
EXPOSE 9404
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["balancedstream", "--help"]
