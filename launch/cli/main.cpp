// The program `paceline`: reads argv and the environment (nothing else does), picks the command.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

#include "launch/base/cache_folders.hpp"
#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/standard_streams.hpp"
#include "launch/base/text_output.hpp"
#include "launch/check/check.hpp"
#include "launch/cli/bench.hpp"
#include "launch/cli/convert.hpp"
#include "launch/cli/datastore.hpp"
#include "launch/cli/generate.hpp"
#include "launch/cli/inspect.hpp"
#include "launch/cli/run.hpp"
#include "launch/cli/search.hpp"
#include "launch/cli/tokenize.hpp"
#include "launch/cli/top/top.hpp"
#include "launch/cli/version.hpp"
#include "launch/cluster/agent.hpp"
#include "launch/grammar/helper_main.hpp"
#include "launch/plan/plan.hpp"
#include "launch/score/score.hpp"
#include "launch/serve/serve.hpp"
#include "launch/session/stage_main.hpp"
#include "launch/simulate/simulate.hpp"
#include "model/weights/message_text.hpp"
#include "runtime/loop/stage_process.hpp"

namespace {

void complain(const std::string& what) {
    std::fprintf(stderr, "paceline: %s\n", paceline::visible_lines(what).c_str());
}

std::optional<std::string> set_variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

std::string variable(const std::string& name) {
    return set_variable(name).value_or("");
}

/// Those whose name is wanted.
std::map<std::string, std::string> variables_that(bool (*is_wanted)(std::string_view name)) {
    std::map<std::string, std::string> found;
    for (char** each = environ; *each != nullptr; ++each) {
        const std::string_view line = *each;
        const std::size_t end = line.find('=');
        if (end != line.npos && is_wanted(line.substr(0, end)))
            found.emplace(line.substr(0, end), line.substr(end + 1));
    }
    return found;
}

paceline::Environment read_environment() {
    paceline::Environment environment;
    environment.model = variable("PACELINE_MODEL");
    environment.method = variable("PACELINE_METHOD");
    environment.pretrained = variable("PACELINE_PRETRAINED");
    environment.variables =
        variables_that([](std::string_view name) { return name.starts_with("PACELINE_"); });
    (void)unsetenv("PACELINE_KEY");  // stages inherit the environment, and need no key
    environment.starter = variables_that(paceline::is_starter_variable);
    environment.cache_folder = paceline::own_cache_folder(set_variable);
    environment.hub_cache = paceline::hub_cache_folder(set_variable);
    environment.stdin_is_terminal = isatty(STDIN_FILENO) == 1;
    environment.stdout_is_terminal = isatty(STDOUT_FILENO) == 1;
    environment.stderr_is_terminal = isatty(STDERR_FILENO) == 1;
    const std::string terminal = variable("TERM");
    environment.terminal_moves = !terminal.empty() && terminal != "dumb";
    return environment;
}

constexpr const char* kMainFooter =
    "paceline COMMAND --help explains a command.\n"
    "Exit codes: 0 done; 1 a file, memory or process failed; 2 wrong command line; 130 Ctrl-C; "
    "141 a reader left the pipe; 143 SIGTERM.";

/// Whether another process of this program started this one: `paceline stage --control-fd N`.
bool is_child(int argc, char** argv, std::string_view subcommand) {
    return argc == 4 && argv[1] == subcommand &&
           std::string_view{argv[2]} == paceline::kControlFdOption;
}

int run(int argc, char** argv) {
    if (is_child(argc, argv, paceline::kGrammarHelperSubcommand)) {
        ::prctl(PR_SET_NAME, argv[0]);
        return paceline::grammar_helper_main(std::atoi(argv[3]));
    }
    if (is_child(argc, argv, paceline::kStageSubcommand)) {
        ::prctl(PR_SET_NAME, argv[0]);  // "paceline: early-verify"; the kernel keeps 15 letters
        return paceline::stage_main(std::atoi(argv[3]));
    }
    const paceline::Environment environment = read_environment();
    paceline::CommandLine line{
        "Paceline decodes large language models faster without changing one token.", "paceline"};
    line.add_version(paceline::version_text, "version, commit, compiler, CPU, CUDA");
    paceline::Command root = line.root();
    root.footer(kMainFooter);

    paceline::RunOptions run_options;
    paceline::ServeOptions serve_options;
    paceline::GenerateOptions generate_options;
    paceline::TokenizeOptions tokenize_options;
    paceline::ScoreCommandOptions score_options;
    paceline::DatastoreOptions datastore_options;
    paceline::InspectOptions inspect_options;
    paceline::BenchOptions bench_options;
    paceline::TopOptions top_options;
    paceline::SimulateOptions simulate_options;
    paceline::CheckOptions check_options;
    paceline::SearchOptions search_options;
    paceline::PlanOptions plan_options;
    paceline::ConvertCommandOptions convert_options;
    paceline::AgentOptions agent_options;
    const paceline::Command run_command = paceline::add_run(root, run_options);
    const paceline::Command serve_command = paceline::add_serve(root, serve_options);
    const paceline::Command generate_command = paceline::add_generate(root, generate_options);
    const paceline::Command tokenize_command = paceline::add_tokenize(root, tokenize_options);
    const paceline::Command score_command = paceline::add_score(root, score_options);
    const paceline::Command datastore_command = paceline::add_datastore(root, datastore_options);
    const paceline::Command inspect_command = paceline::add_inspect(root, inspect_options);
    const paceline::Command bench_command = paceline::add_bench(root, bench_options);
    const paceline::Command top_command = paceline::add_top(root, top_options);
    const paceline::Command simulate_command = paceline::add_simulate(root, simulate_options);
    const paceline::Command check_command = paceline::add_check(root, check_options);
    const paceline::Command search_command = paceline::add_search(root, search_options);
    const paceline::Command plan_command = paceline::add_plan(root, plan_options);
    const paceline::Command convert_command = paceline::add_convert(root, convert_options);
    const paceline::Command agent_command = paceline::add_agent(root, agent_options);
    if (const std::optional<int> code = line.parse(argc, argv)) return *code;
    if (run_command.parsed()) return paceline::run_run(run_options, environment);
    if (serve_command.parsed())
        return paceline::run_serve(serve_command, serve_options, environment);
    if (generate_command.parsed()) return paceline::run_generate(generate_options, environment);
    if (tokenize_command.parsed()) return paceline::run_tokenize(tokenize_options, environment);
    if (score_command.parsed()) return paceline::run_score(score_options, environment);
    if (datastore_command.parsed()) return paceline::run_datastore(datastore_options, environment);
    if (inspect_command.parsed()) return paceline::run_inspect(inspect_options, environment);
    if (bench_command.parsed()) return paceline::run_bench(bench_options, environment);
    if (top_command.parsed()) return paceline::run_top(top_options, environment);
    if (simulate_command.parsed()) return paceline::run_simulate(simulate_options, environment);
    if (check_command.parsed()) return paceline::run_check(check_options, environment);
    if (search_command.parsed()) return paceline::run_search(search_options, environment);
    if (plan_command.parsed()) return paceline::run_plan(plan_options, environment);
    if (convert_command.parsed()) return paceline::run_convert(convert_options, environment);
    if (agent_command.parsed()) return paceline::run_agent(agent_options, environment);
    return paceline::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
    paceline::prepare_process();
    try {
        const int code = run(argc, argv);
        const paceline::Status printed = paceline::flush_stdout();
        if (printed.ok()) return code;
        if (code != paceline::kExitOk) return code;  // the command has said what failed
        complain(printed.error().what);
    } catch (const std::bad_alloc&) {
        std::fputs("paceline: out of memory\n", stderr);
    } catch (const std::filesystem::filesystem_error& error) {
        complain(error.what());
    } catch (const std::system_error& error) {
        // std::thread names nothing; nothing else throws these two.
        const bool thread = error.code() == std::errc::resource_unavailable_try_again ||
                            error.code() == std::errc::operation_not_permitted;
        complain(!thread ? std::string{error.what()}
                         : std::string{"cannot start a thread: "} + error.what() +
                               "; ulimit -u or the container's limit of processes may be too low, "
                               "or a container runtime forbids clone3 (docker before 20.10.10 "
                               "does)");
    } catch (const std::exception& error) {
        complain(error.what());
    }
    return paceline::kExitFailure;
}
