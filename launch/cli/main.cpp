// The program `paceline`: reads argv and the environment (nothing else does), picks the command.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "launch/base/environment.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/cli/bench.hpp"
#include "launch/cli/check.hpp"
#include "launch/cli/generate.hpp"
#include "launch/cli/inspect.hpp"
#include "launch/cli/run.hpp"
#include "launch/cli/simulate.hpp"
#include "launch/cli/tokenize.hpp"
#include "launch/cli/top.hpp"
#include "launch/cli/version.hpp"
#include "launch/session/stage_main.hpp"
#include "runtime/loop/stage_process.hpp"

namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string{} : std::string{value};
}

paceline::Environment read_environment() {
    paceline::Environment environment;
    environment.model = variable("PACELINE_MODEL");
    environment.pretrained = variable("PACELINE_PRETRAINED");
    const std::string cache = variable("XDG_CACHE_HOME");
    environment.cache_folder = (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/paceline";
    environment.stdin_is_terminal = isatty(STDIN_FILENO) == 1;
    environment.stdout_is_terminal = isatty(STDOUT_FILENO) == 1;
    environment.stderr_is_terminal = isatty(STDERR_FILENO) == 1;
    return environment;
}

constexpr const char* kFooter =
    "paceline COMMAND --help explains a command.\n"
    "Exit codes: 0 done; 1 a file, memory or process failed; 2 wrong command line; 130 Ctrl-C; "
    "143 SIGTERM.";

int usage_error(const CLI::App& app, const CLI::ParseError& error, const char* first_word) {
    std::string command = "paceline";
    for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
    std::string what = error.what();
    if (app.get_subcommands().empty() && first_word != nullptr && first_word[0] != '-') {
        what = std::string{"'"} + first_word +
               "' is not one of run|generate|tokenize|inspect|bench|top|check|simulate";
    }
    std::fprintf(stderr, "%s: %s\nTry: %s --help\n", command.c_str(), what.c_str(),
                 command.c_str());
    return paceline::kExitUsage;
}

/// What a caller may have left in a state that stages would inherit or stumble over: closed standard
/// streams, whose numbers the next descriptor would get, and children that must not be waited for.
void repair_inheritance() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
    }
    std::signal(SIGCHLD, SIG_DFL);
}

/// Whether a supervisor started this process as a stage: `paceline stage --control-fd N`.
bool is_stage(int argc, char** argv) {
    return argc == 4 && std::string_view{argv[1]} == paceline::kStageSubcommand &&
           std::string_view{argv[2]} == paceline::kControlFdOption;
}

int run(int argc, char** argv) {
    if (is_stage(argc, argv)) return paceline::stage_main(std::atoi(argv[3]));
    const paceline::Environment environment = read_environment();
    CLI::App app{"Paceline decodes large language models faster without changing one token.",
                 "paceline"};
    app.set_version_flag("--version", paceline::version_text,
                         "version, commit, compiler, CPU, CUDA");
    app.require_subcommand(1);
    app.footer(kFooter);

    paceline::RunOptions run_options;
    paceline::GenerateOptions generate_options;
    paceline::TokenizeOptions tokenize_options;
    paceline::InspectOptions inspect_options;
    paceline::BenchOptions bench_options;
    paceline::TopOptions top_options;
    paceline::SimulateOptions simulate_options;
    paceline::CheckOptions check_options;
    const CLI::App* run_command = paceline::add_run(app, run_options);
    const CLI::App* generate_command = paceline::add_generate(app, generate_options);
    const CLI::App* tokenize_command = paceline::add_tokenize(app, tokenize_options);
    const CLI::App* inspect_command = paceline::add_inspect(app, inspect_options);
    const CLI::App* bench_command = paceline::add_bench(app, bench_options);
    const CLI::App* top_command = paceline::add_top(app, top_options);
    const CLI::App* simulate_command = paceline::add_simulate(app, simulate_options);
    const CLI::App* check_command = paceline::add_check(app, check_options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        return app.exit(help);  // --help, --version: prints them
    } catch (const CLI::ParseError& error) {
        return usage_error(app, error, argc > 1 ? argv[1] : nullptr);
    }

    if (run_command->parsed()) return paceline::run_run(run_options, environment);
    if (generate_command->parsed()) return paceline::run_generate(generate_options, environment);
    if (tokenize_command->parsed()) return paceline::run_tokenize(tokenize_options, environment);
    if (inspect_command->parsed()) return paceline::run_inspect(inspect_options, environment);
    if (bench_command->parsed()) return paceline::run_bench(bench_options, environment);
    if (top_command->parsed()) return paceline::run_top(top_options, environment);
    if (simulate_command->parsed()) return paceline::run_simulate(simulate_options, environment);
    if (check_command->parsed()) return paceline::run_check(check_options, environment);
    return paceline::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
    repair_inheritance();
    try {
        return run(argc, argv);
    } catch (const std::bad_alloc&) {
        std::fputs("paceline: out of memory\n", stderr);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "paceline: %s\n", error.what());
    }
    return paceline::kExitFailure;
}
