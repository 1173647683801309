#include "launch/cli/run.hpp"

#include <cstdio>
#include <fmt/core.h>
#include <string_view>
#include <utility>

#include "launch/base/cpu_contention.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_output.hpp"
#include "launch/cli/auto_method.hpp"
#include "launch/cli/chat_loop.hpp"
#include "launch/cli/run_plan.hpp"
#include "launch/cli/run_session.hpp"
#include "launch/config/config_text.hpp"
#include "launch/config/methods.hpp"
#include "launch/config/settings_page.hpp"
#include "launch/load/parts_search.hpp"
#include "model/sampling/stop_matcher.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

namespace {

constexpr const char* kRunCommand = "run";

constexpr const char* kRunFooter =
    R"(Examples:
  paceline run "Why is the sky blue?"
  paceline run -m model.gguf --raw -p "Once upon a time" -n 64 --temp 0.8 --seed 7
  git diff | paceline run --system "Summarise this change in one sentence."
  paceline run --config configs/cpu-two-segments.toml -f question.txt
  paceline run --method four-stages --figures -p "Why is the sky blue?"
  paceline run --interactive

Without sampling options decoding is greedy, whatever a model's generation_config.json says;
--generation-config draws as that of a Hugging Face folder says, a GGUF file does not carry it.
SmolLM2's own sets no temperature, its model card's example draws with --temp 0.2 --top-p 0.9.

Ctrl-C ends the answer and still prints the figures. SIGTERM lets the answer finish, for at most
30 seconds (drain_s in a pipeline's [supervision]), and begins no other; exit code 0 if it did. A
second signal ends the program at once. A stage that dies in the middle of an answer is started
again and the answer goes on, with the same text; what is lost and back is said on stderr.)";

void add_prompt_options(Command& command, RunOptions& options) {
    command.add_option("-p,--prompt,prompt", options.prompt.text,
                       "the prompt, with or without -p (or -f FILE, or standard input)");
    command.add_option("-f,--file", options.prompt.file,
                       "read the prompt from FILE, - is standard input");
    command.add_option("--system", options.system,
                       "system prompt (default: the chat template's own)");
    command.add_option("--tools", options.tools_file,
                       "tools for the chat template: a JSON file, the list `tools` of chat APIs");
    command.add_flag("--raw", options.raw,
                     "give the model the prompt as it is, without chat template; text such as "
                     "<|im_start|> is the control token");
    command.add_flag(
        "-i,--interactive", options.interactive,
        "chat: one message a line, /help in it says more; the conversation stays in the "
        "KV cache");
}

void add_answer_options(Command& command, RunOptions& options) {
    command.add_option("-n,--n-predict", options.max_tokens,
                       "most tokens of the answer; -1 until the model ends it or the context is "
                       "full, 0 only processes the prompt",
                       explain_low(whole_number(-1), "until the context is full is -1"));
    command
        .add_option("--stop", options.stop_strings,
                    "end the answer where this text appears; may be repeated")
        .repeated();
    command
        .add_option("--logprobs", options.logprobs,
                    "print log probability and rank of each token after the answer, with the N "
                    "most probable ones; with -n 0 of the prompt's tokens; also into --stats")
        .check(whole_number(0, kTopScoresMax));
    add_grammar_options(command, options.grammar);
    command.add_option("--ids", options.ids_file,
                       "write the generated token ids to FILE, a JSON array");
    command.add_option("--stats", options.stats_file, "write the figures to FILE, as JSON");
}

void add_insight_options(Command& command, RunOptions& options) {
    command.add_option("--log", options.log_file,
                       "write what the conductor and all stages log to FILE, one line each");
    command.add_flag("-v,--verbose", options.verbose,
                     "show the same lines on standard error, and which stage is where");
    command.add_flag("-q,--quiet", options.quiet,
                     "nothing on standard error but errors and lost stages: no progress, table, "
                     "figures or remarks");
    command.add_option("--trace", options.trace_file,
                       "write the events of all stages to FILE, for ui.perfetto.dev");
}

void add_method_options(Command& command, RunOptions& options) {
    command.add_option("--config", options.config_file,
                       "pipeline of processes to decode with (configs/*.toml)");
    command
        .add_option("--method", options.method,
                    "how to decode: auto (the fastest by earlier runs here; docs/"
                    "choosing-a-method.md), plain (one token after the other, in this process), "
                    "or one of --list-methods, a pipeline of processes. The text is the same "
                    "(default: $PACELINE_METHOD, else auto)")
        .excludes("--config");
    command
        .add_flag_with_value("--list-methods", options.list_methods,
                             "print the families of methods and end; all: every method with what "
                             "it does")
        .type_name("[all]")
        .check({[](const std::string& value) {
            return value == "all" ? std::string{} : "must be all or left out, not '" + value + "'";
        }});
    command.add_flag("--list-settings", options.list_settings,
                     "print the keys of a --config file (docs/configuration.md) and end");
    command.add_flag("--print-config", options.print_config,
                     "print the file of --method or --config with all that it extends, and end");
    command.add_option(
        "--draft-model", options.draft_model,
        "draft model with the target's vocabulary: a GGUF file, a Hugging Face folder, or "
        "OWNER/NAME of one in its cache (default: as the method says)");
    command.add_flag("--figures", options.figures,
                     "print a table at the end: acceptance, rejected rows, waiting time");
    command.add_flag(
        "--baseline", options.baseline,
        "with --figures: decode the beginning again, plainly and so, three times in turn; "
        "compare texts and speed");
}

void add_placement_options(Command& command, RunOptions& options) {
    add_gpus_option(command, options.gpus);
    command.add_option("--machine", options.machine_file,
                       "a file that describes a machine's GPUs, memory and links "
                       "(configs/machines); the stages are placed for it");
    command.add_flag(
        "--dry-run", options.dry_run,
        "print the placement of the stages with bytes and links, and end; with --machine "
        "without any GPU, with --random for a model that is not there");
    add_meeting_options(command, options.meeting);
}

Status check_options(const RunOptions& options, const Environment& environment) {
    const auto bad = [](const char* what) { return Error{Errc::BadArgument, what}; };
    if (Status s = check_plan_options(options); !s.ok()) return s;
    if (options.uses_stages() && !options.is_auto() && !device_of(options.model).exact)
        return bad(kExactIsForPlain);
    if (!options.config_file.empty() && device_of(options.model).gpu) {
        return bad(kDeviceIsInTheFile);
    }
    if (options.raw && !options.system.empty()) {
        return bad("--system belongs to the chat template, --raw uses none");
    }
    if (options.raw && !options.tools_file.empty()) {
        return bad("--tools are for the chat template, --raw uses none");
    }
    if (options.raw && options.interactive) {
        return bad("--interactive needs the chat template, --raw uses none");
    }
    if (!options.trace_file.empty() && !options.uses_stages()) {
        return bad("--trace shows stages; give it together with --method or --config");
    }
    if (!options.draft_model.empty() && !options.uses_stages()) {
        return bad("--draft-model is for methods that draft; give it with --method or --config");
    }
    const bool lora_in_parts = options.model.lora == kEarlyExit;
    if (!options.model.parts.empty() && options.model.parts != kNoParts && !lora_in_parts &&
        !options.uses_stages()) {
        return bad(
            "--parts are drafts and exits, which plain decoding has not; give it with --method or "
            "--config");
    }
    if (options.baseline && !options.figures) {
        return bad("--baseline is a line of the table that --figures prints");
    }
    if (options.figures && !options.uses_stages()) {
        return bad("--figures tells of stages; give it together with --method or --config");
    }
    if (options.interactive && options.logprobs >= 0)
        return bad("--logprobs is for a single answer, not for --interactive");
    if (options.interactive && options.grammar.any())
        return bad("--json-schema and --grammar are for a single answer, not for --interactive");
    if (options.quiet && options.verbose) return bad("--quiet and --verbose exclude each other");
    if (options.interactive && options.figures)
        return bad("--figures is for a single answer, not for --interactive");
    for (const std::string& stop : options.stop_strings) {
        if (stop.empty()) return bad("--stop: '' is empty and would end every answer at once");
    }
    if (Status s = validate_stop_strings(options.stop_strings); !s.ok())
        return Error{s.error().code, "--stop: " + s.error().what};
    return check_machines(options, environment);
}

/// The prompt. Of a chat, the first message if one was given.
Result<std::optional<std::string>> read_prompt(const RunOptions& options,
                                               const Environment& environment) {
    if (options.interactive && !options.prompt.text && options.prompt.file.empty()) {
        return std::optional<std::string>{};
    }
    if (options.interactive && options.prompt.file == "-") {
        return Error{Errc::BadArgument,
                     "--interactive reads messages from standard input, -f - the prompt"};
    }
    Result<std::string> text = read_text(options.prompt, environment);
    if (!text) return text.error();
    std::string prompt = std::move(text).value();
    // Files and `echo` end with a newline that is not part of the prompt; --raw takes every byte as
    // it is.
    const bool typed = options.prompt.text.has_value();
    if (!typed && !options.raw && !prompt.empty() && prompt.back() == '\n') prompt.pop_back();
    return std::optional<std::string>{std::move(prompt)};
}

/// A remark for --stop texts in which an escape of shells or C stands for a character; empty: none.
std::string escaped_stops(const std::vector<std::string>& stops) {
    constexpr std::pair<std::string_view, const char*> kEscapes[] = {
        {"\\n", "a line break"}, {"\\t", "a tab"}, {"\\r", "a carriage return"}};
    std::string remark;
    for (const std::string& stop : stops) {
        for (const auto& [escape, meant] : kEscapes) {
            if (stop.find(escape) == stop.npos) continue;
            remark += fmt::format("{}--stop '{}': {} is two characters; {} is $'{}'",
                                  remark.empty() ? "" : "\n", stop, escape, meant, escape);
            break;
        }
    }
    return remark;
}

struct Outputs {
    std::optional<OutputFile> ids;
    std::optional<OutputFile> stats;
    std::optional<OutputFile> trace;
    RunLog log;
};

Result<Outputs> open_outputs(const RunOptions& options) {
    Outputs outputs;
    if (Status named = open_if_named(options.ids_file, "--ids", outputs.ids); !named)
        return named.error();
    if (Status named = open_if_named(options.stats_file, "--stats", outputs.stats); !named)
        return named.error();
    if (Status named = open_if_named(options.trace_file, "--trace", outputs.trace); !named)
        return named.error();
    Result<RunLog> log = RunLog::open(options.log_file, options.verbose);
    if (!log) return log.error();
    outputs.log = std::move(log).value();
    return outputs;
}

Status write_outputs(Outputs& outputs, const RunSession& session, bool chat) {
    // Most wanted after a run that failed.
    if (outputs.trace) {
        if (Status s = outputs.trace->write(session.trace_text()); !s.ok()) return s;
    }
    if (Status s = outputs.log.written(); !s.ok()) return s;
    if (!chat && !session.has_answers()) return {};
    if (outputs.ids) {
        if (Status s = outputs.ids->write(session.ids_json(chat)); !s.ok()) return s;
    }
    if (outputs.stats) return outputs.stats->write(session.stats_json(chat));
    return {};
}

/// What slowed the run down, for people.
void print_contention(const CpuContention& load,
                      const RunOptions& options,
                      const Environment& environment) {
    const bool read = environment.stderr_is_terminal || options.figures || options.verbose;
    const std::optional<double> cores = load.cores();
    if (!read || options.quiet || !cores) return;
    const std::string note = contention_note(*cores, load.usable(), options.uses_stages());
    if (!note.empty()) std::fprintf(stderr, "paceline run: %s\n", note.c_str());
}

int single_answer(RunSession& session,
                  const Turn& turn,
                  const RunOptions& options,
                  const Environment& environment) {
    const CpuContention load;
    Result<FinishReason> end = session.answer(turn);
    if (!end) return report_failure(kRunCommand, end.error());
    if (end.value() == FinishReason::ContextFull) {
        std::fprintf(stderr, "[the context of %d tokens is full, the answer ends here]\n",
                     session.context());
    }
    print_contention(load, options, environment);
    if (!options.quiet) std::fprintf(stderr, "%s\n", one_line(session.last_stats()).c_str());
    if (options.logprobs >= 0) {
        if (Status s = session.print_scores(); !s.ok())
            return report_failure(kRunCommand, s.error());
    }
    if (options.figures) {
        if (Status s = session.print_stats(options); !s.ok())
            return report_failure(kRunCommand, s.error());
    }
    // Also if the tokens were all there when it came, and only their text was still on its way.
    if (session.interrupt().raised()) return kExitInterrupted;
    if (end.value() != FinishReason::Interrupted) return kExitOk;
    return session.interrupt().draining() ? kExitTerminated : kExitInterrupted;
}

/// Loads the method that `--method auto` comes to, and says which it is. One that cannot be started
/// is followed by the next one. Errors: those of plain decoding.
Status load_automatic(RunSession& session,
                      const AutoMethod& automatic,
                      RunOptions& chosen,
                      Result<std::optional<PipelineConfig>>& written,
                      const Environment& environment,
                      RunLog& log) {
    const AutoChoice choice = automatic.choose(chosen);
    const auto tell = [&](const std::string& what) {
        if (!chosen.quiet) std::fprintf(stderr, "paceline run: %s\n", what.c_str());
    };
    std::vector<std::string> methods{choice.method};
    methods.insert(methods.end(), choice.fallbacks.begin(), choice.fallbacks.end());
    tell(fmt::format("method {}: {}", choice.method, choice.reason));
    Status loaded;
    for (const std::string& method : methods) {
        chosen.method = method;
        written = written_pipeline(chosen);
        if (written.ok()) {
            if (!chosen.quiet && !written.value()) session.print_rounded_types();
            loaded = session.load(written.value(), chosen, environment, log);
        } else {
            loaded = written.error();
        }
        if (loaded.ok() || method == methods.back()) break;
        tell(fmt::format("method {} could not be started ({}); the next one is tried", method,
                         loaded.error().what));
        chosen.draft_model.clear();  // of the first one
    }
    return loaded;
}

/// What --list-methods, --list-settings or --print-config print.
Result<std::string> page_of(const RunOptions& options) {
    if (options.list_methods)
        return *options.list_methods == "all" ? methods_table() : families_table();
    if (options.list_settings) return settings_text();
    const std::string method = options.is_auto() ? kPlainMethod : options.method;
    const Result<ConfigSource> source = config_source(options.config_file, method);
    return source ? config_text(source.value()) : source.error();
}

}  // namespace

Command add_run(Command& app, RunOptions& options) {
    Command command = app.add_command(kRunCommand, "Decode an answer to a prompt, or chat");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    add_exact_option(command, options.model);
    add_random_options(command, options.model);
    add_parts_option(command, options.model);
    add_prompt_options(command, options);
    add_answer_options(command, options);
    add_method_options(command, options);
    add_placement_options(command, options);
    add_insight_options(command, options);
    add_sampling_options(command, options.sampling);
    add_generation_config_option(command, options.sampling);
    command.footer(kRunFooter);
    return command;
}

int run_run(const RunOptions& given, const Environment& environment) {
    end_on_usr1_while_loading();
    RunOptions options = given;
    if (options.method.empty() && options.config_file.empty())
        options.method = environment.method.empty() ? kAutoMethod : environment.method;
    if (options.list_methods || options.list_settings || options.print_config) {
        const Result<std::string> page = page_of(options);
        if (!page) return report(kRunCommand, page.error());
        const Status written = write_stdout(page.value());
        return written.ok() ? kExitOk : report_failure(kRunCommand, written.error());
    }
    if (Status s = check_options(options, environment); !s.ok())
        return report(kRunCommand, s.error());
    // With auto the method is known once the model is.
    Result<std::optional<PipelineConfig>> written = written_pipeline(options);
    if (!written) return report(kRunCommand, written.error());
    if (options.dry_run) {
        const Status printed = print_plan(*written.value(), options, environment);
        return printed.ok() ? kExitOk : report(kRunCommand, printed.error());
    }
    if (const std::string warning =
            threads_warning(options.model.threads, device_of(options.model));
        !warning.empty()) {
        std::fprintf(stderr, "paceline run: %s\n", warning.c_str());
    }
    Result<std::optional<std::string>> prompt = read_prompt(options, environment);
    if (!prompt) return report(kRunCommand, prompt.error());
    Result<Outputs> outputs = open_outputs(options);
    if (!outputs) return report(kRunCommand, outputs.error());
    Result<RunSession> opened = RunSession::open(options, environment);
    if (!opened) return report(kRunCommand, opened.error());
    RunSession& session = opened.value();
    const std::string idle = idle_sampling_options(options.sampling);
    if (!options.quiet && !idle.empty()) std::fprintf(stderr, "paceline run: %s\n", idle.c_str());
    if (const std::string stops = escaped_stops(options.stop_strings);
        !options.quiet && !stops.empty())
        std::fprintf(stderr, "paceline run: %s\n", visible_lines(stops).c_str());
    if (const std::string keys = session.sampling_remark(options); !options.quiet && !keys.empty())
        std::fprintf(stderr, "paceline run: %s\n", keys.c_str());

    Turn turn;
    if (prompt.value()) {
        Result<Turn> asked = session.turn(*prompt.value());
        if (!asked) return report_failure(kRunCommand, asked.error());
        turn = std::move(asked).value();
        // A prompt that does not fit is a fact about the text, not about the command line.
        if (Status s = session.check_room(turn); !s.ok())
            return report_failure(kRunCommand, s.error());
    }
    AutoMethod automatic{options, session.file(), session.draws(), environment};
    RunOptions chosen = options;
    Status loaded;
    if (options.is_auto()) {
        loaded =
            load_automatic(session, automatic, chosen, written, environment, outputs.value().log);
    } else {
        // A pipeline says it of all its models, each where it is computed.
        if (!options.quiet && !written.value()) session.print_rounded_types();
        loaded = session.load(written.value(), chosen, environment, outputs.value().log);
    }
    if (!loaded) return report(kRunCommand, loaded.error());
    const int code = options.interactive ? chat_loop(session, prompt.value(), chosen, environment)
                                         : single_answer(session, turn, chosen, environment);
    // The choice of auto is that of one machine.
    if (session.has_answers() && !session.is_on_several_machines())
        automatic.learn(chosen, session.last_stats(), session.last_pipeline_stats(),
                        written.value());
    if (Status s = write_outputs(outputs.value(), session, options.interactive); !s.ok()) {
        return report_failure(kRunCommand, s.error());
    }
    return code;
}

}  // namespace paceline
