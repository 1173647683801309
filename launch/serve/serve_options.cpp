#include "launch/serve/serve_options.hpp"

#include <utility>

#include "launch/base/option_checks.hpp"
#include "launch/serve/serve.hpp"

namespace paceline {
namespace {

constexpr const char* kServeFooter =
    R"(Examples:
  paceline serve
  paceline serve -m model.gguf --method pearl --requests 8 --kv-memory 2G --alias my-model
  paceline serve --host 0.0.0.0 --api-key-file keys.txt
  paceline serve --node 0/2 --meet node-a:47600 --key ~/cluster.key --method pearl -m model.gguf

  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
       -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": true}'

The port answers 503 while the model is loaded; GET /health says what state the server is in.
SIGTERM or Ctrl-C lets running answers finish, for at most --drain seconds, and takes no others;
exit code 0 once all stages have ended. A second one ends the program at once. A stage that dies is
started again and its answers go on with the same text.

On several machines this one is machine 0, which decodes and answers; the others run `paceline
agent`, which is waited for up to 14 seconds, and ends when the server does (docs/clusters.md).

Each option has a variable (--kv-memory: PACELINE_KV_MEMORY) and a key in the table [serve] of the
--config file (kv_memory); the option counts most, then the variable.
docs/serving.md has the API.)";

void add_what_to_serve(Command& command, ServeOptions& options) {
    command.add_option("--config", options.config_file,
                       "pipeline of processes to decode with (configs/*.toml)");
    command
        .add_option("--method", options.method,
                    "how to decode: auto (the fastest by earlier runs here), plain, or one of "
                    "paceline run --list-methods (default: $PACELINE_METHOD, else auto)")
        .excludes("--config");
    command.add_option(
        "--draft-model", options.draft_model,
        "draft model with the target's vocabulary: a GGUF file, a Hugging Face folder or "
        "OWNER/NAME");
    command
        .add_option("--replan", options.replan_s,
                    "seconds between two looks at whether another method would be faster than the "
                    "one that --method auto chose; 0: it stays")
        .check(number_between(0.0, 86'400.0))
        .show_default();
    add_gpus_option(command, options.gpus);
    command.add_option("--alias", options.alias,
                       "the model's name in the API (default: that of its file or folder)");
    add_requests_options(command, options.requests, options.kv_memory);
    command
        .add_option("--queue", options.queue,
                    "answers that may wait beside those; more are refused with 429")
        .check(whole_number(0, 100'000))
        .show_default();
}

void add_where_to_serve(Command& command, ServeOptions& options) {
    command
        .add_option("--host", options.host,
                    "address to listen on; one that other machines reach needs --api-key-file")
        .show_default();
    command.add_option("--port", options.port, "TCP port; 0 takes a free one, which is printed")
        .check(whole_number(0, 65'535))
        .show_default();
    command
        .add_option("--unix", options.unix_path,
                    "listen on the Unix socket of this path instead; for this user alone")
        .excludes("--host")
        .excludes("--port");
    command
        .add_option("--peer-connections", options.peer_connections,
                    "connections that one address of another machine may have open; 0: no limit")
        .check(whole_number(0, 1'000'000))
        .show_default();
    command.add_option("--api-key-file", options.key_file,
                       "API keys, one a line; every request but /health must name one");
    command
        .add_option("--cors-origin", options.origins,
                    "web pages of this origin may ask, such as http://localhost:3000; may be "
                    "repeated")
        .repeated();
    command
        .add_option("--drain", options.drain_s,
                    "seconds that answers may take to finish after SIGTERM (default: drain_s of "
                    "the pipeline's [supervision], 30)")
        .check(number_between(0.0, 86'400.0));
    command
        .add_option("--keep-alive", options.keep_alive_s,
                    "seconds between two comments in a stream that has nothing else to send")
        .check(number_between(0.05, 3'600.0))
        .show_default();
    command
        .add_option("--resume", options.resume_s,
                    "seconds that a stream with paceline.resume is kept for a client that comes "
                    "back; 0: such requests are refused")
        .check(number_between(0.0, 86'400.0))
        .show_default();
    command
        .add_option("--head-timeout", options.head_timeout_s,
                    "seconds until the head of a request must have arrived")
        .check(number_between(0.05, 3'600.0))
        .show_default();
    command
        .add_option("--body-timeout", options.body_timeout_s,
                    "seconds until the body of a request must have arrived")
        .check(number_between(0.05, 3'600.0))
        .show_default();
    command
        .add_option("--recovery-wait", options.recovery_wait_s,
                    "seconds of a recovery after which further requests are refused with 503")
        .check(number_between(0.0, 86'400.0))
        .show_default();
    command
        .add_option("--grammar-seconds", options.grammar_s,
                    "seconds of processor time to compile a schema or grammar; one that takes more "
                    "is refused with 400")
        .check(number_between(0.1, 600.0))
        .show_default();
    command.add_option("--log", options.log_file, "write what all stages log to FILE");
    command.add_flag("-v,--verbose", options.verbose,
                     "show the same lines on standard error, and which stage is where");
}

/// Options of other servers, with ours.
void add_foreign_options(Command& command) {
    // "-np 4" arrives as -n with the value "p".
    command.refuse_option("-n", [](const std::string& value) {
        if (value == "p")
            return std::string{"-np is another server's option; here it is --requests N"};
        if (value == "gl")
            return std::string{"-ngl is another server's option; here it is --device cuda:N"};
        return std::string{"-n is not an option here: each request has its max_tokens"};
    });
    const std::pair<const char*, const char*> known[] = {
        {"--parallel", "--requests N"},
        {"--max-num-seqs", "--requests N"},
        {"--ctx-size", "-c N"},
        {"--max-model-len", "-c N"},
        {"--served-model-name", "--alias NAME"},
        {"--api-key", "--api-key-file FILE: command lines are visible to all users"},
        {"--gpu-memory-utilization", "--kv-memory SIZE"},
        {"--n-gpu-layers", "--device cuda:N"},
        {"--model-draft", "--draft-model PATH"},
        {"--speculative-model", "--draft-model PATH"},
        {"--draft-min", "gamma in a --config file, or paceline.gamma in a request"},
        {"--draft-p-min",
         "confidence_min in a --config file, or paceline.confidence_min in a request"},
        {"--num-speculative-tokens", "gamma in a --config file, or paceline.gamma in a request"},
        {"--draft-max", "gamma in a --config file, or paceline.gamma in a request"},
        {"--speculative-config", "--method NAME, --draft-model PATH or --config FILE"}};
    for (const auto& [theirs, ours] : known) {
        std::string text = std::string{theirs} + " is another server's option; here it is " + ours;
        command.refuse_option(theirs,
                              [text = std::move(text)](const std::string&) { return text; });
    }
}

}  // namespace

Command add_serve(Command& app, ServeOptions& options) {
    Command command = app.add_command("serve", "Answer over HTTP, with the API of OpenAI");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    refuse_exact_option(command);
    refuse_random_option(command);
    add_parts_option(command, options.model);
    add_what_to_serve(command, options);
    add_where_to_serve(command, options);
    add_meeting_options(command, options.meeting);
    add_foreign_options(command);
    command.footer(kServeFooter);
    return command;
}

}  // namespace paceline
