// ServeOptions: what `paceline serve` is asked for on the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/base/model_options.hpp"
#include "launch/cluster/meeting.hpp"
#include "launch/config/config_source.hpp"

namespace paceline {

struct ServeOptions {
    ModelOptions model = {};
    std::string config_file = {};                    // --config
    std::optional<ConfigSource> config_source = {};  // its text, read once: it may be a pipe
    std::string method = {};       // auto, plain or a pipeline's; empty: not given
    std::string draft_model = {};  // --draft-model
    std::string gpus = {};         // --gpus: "0,2" or "all"; empty: as --device or the file says
    std::string host = "127.0.0.1";
    int port = 8080;              // 0: a free one
    std::string unix_path = {};   // --unix; instead of both
    int peer_connections = 1024;  // of an address of another machine; 0: no limit
    std::string key_file = {};
    std::string key = {};  // $PACELINE_API_KEY; an option would show it to all users
    std::vector<std::string> origins = {};  // --cors-origin
    std::string alias = {};
    int requests = 4;              // answers that decode at a time
    std::uint64_t kv_memory = 0;   // bytes of the target's KV caches; 0: a context for each of them
    int queue = 64;                // answers that wait beside those
    double drain_s = -1.0;         // below 0: as the pipeline says
    double keep_alive_s = 10.0;    // between two comments of a stream that waits
    double resume_s = 60.0;        // that a stream is kept for a client that comes back
    double head_timeout_s = 10.0;  // until a request's head has arrived
    double body_timeout_s = 60.0;  // until its body has
    double recovery_wait_s = 30.0;  // of a recovery, until further requests are refused
    double grammar_s = 5.0;         // processor time to compile a grammar
    double replan_s = 300.0;        // between two looks at --method auto's choice; 0: it stays
    MeetingOptions meeting = {};    // of several machines
    std::string log_file = {};
    bool verbose = false;
};

}  // namespace paceline
