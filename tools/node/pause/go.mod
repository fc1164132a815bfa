// The sandbox image of `make node-test`: one static program without dependencies.
module croft.dev/node/pause

go 1.26.0
