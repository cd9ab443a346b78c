# The S3 server of the tests, so that tests and deployment agree. A bucket is a folder: the image contains one.
FROM golang:1.26-alpine AS build
RUN CGO_ENABLED=0 go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

FROM alpine:3.22
COPY --from=build /go/bin/versitygw /usr/local/bin/
COPY versitygw.sh /etc/versitygw.sh
RUN install -d -o nobody -g nobody /srv/objects /srv/objects/data /srv/objects/data/tiering /srv/objects/versions
USER nobody
VOLUME /srv/objects
EXPOSE 7070
