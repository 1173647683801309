// Drives a fuzzer without libFuzzer: valid inputs, mutated as a seed decides.
//
//     fuzz_ring --runs N [--seed S]       N inputs (100,000 if not given)
//     fuzz_ring --only RUN [--seed S]     that one of them, to look at a failure
//     fuzz_ring --corpus FOLDER           64 valid inputs as files, for libFuzzer to start with
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.hpp"

using namespace paceline::test;

namespace {

constexpr std::size_t kInputBytesMax = 4096;
constexpr std::array<std::uint64_t, 12> kTelling = {
    0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, ~0ULL >> 1U, ~0ULL};

// For the handler of a crash; set before each run.
volatile std::uint64_t current_run = 0;
volatile std::uint64_t current_seed = 0;

void write_text(const char* text, std::size_t length) {
    if (::write(STDERR_FILENO, text, length) < 0) return;  // nothing more can be done here
}

extern "C" void on_crash(int signal) {
    std::array<char, 20> digits{};
    const auto print = [&digits](std::string_view text, std::uint64_t number) {
        write_text(text.data(), text.size());
        std::size_t at = digits.size();
        do {
            digits[--at] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number > 0);
        write_text(digits.data() + at, digits.size() - at);
    };
    print("\nfuzzing failed: --only ", current_run);
    print(" --seed ", current_seed);
    write_text("\n", 1);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

void put_number(SeededRandom& random, FuzzBytes& input) {
    constexpr std::array<std::size_t, 4> kWidths = {1, 2, 4, 8};
    const std::size_t width = kWidths[random.below(4)];
    if (input.size() < width) return;
    const std::size_t at = random.below(static_cast<std::uint32_t>(input.size() - width + 1));
    std::uint64_t value = 0;
    std::memcpy(&value, input.data() + at, width);
    switch (random.below(3)) {
        case 0:
            value = kTelling[random.below(kTelling.size())];
            break;
        case 1:
            value += random.below(17);
            value -= 8;
            break;
        default:
            value ^= 1ULL << random.below(64);
    }
    std::memcpy(input.data() + at, &value, width);
}

void mutate_once(SeededRandom& random, FuzzBytes& input) {
    const auto size = static_cast<std::uint32_t>(input.size());
    if (size == 0) {
        input.push_back(static_cast<std::uint8_t>(random.next()));
        return;
    }
    const std::uint32_t at = random.below(size);
    switch (random.below(8)) {
        case 0:
            input[at] = static_cast<std::uint8_t>(random.next());
            break;
        case 1:
            input.resize(at);
            break;
        case 2:
            input.insert(input.begin() + at, static_cast<std::uint8_t>(random.next()));
            break;
        case 3:
            input.erase(input.begin() + at);
            break;
        case 4: {  // a piece once more, at another place
            const FuzzBytes piece(input.begin() + at,
                                  input.begin() + at + 1 + random.below(size - at));
            input.insert(input.begin() + random.below(size), piece.begin(), piece.end());
            break;
        }
        case 5: {  // the rest of another valid input
            const FuzzBytes other = valid_input(random);
            if (at < other.size()) {
                input.resize(at);
                input.insert(input.end(), other.begin() + at, other.end());
            }
            break;
        }
        default:
            put_number(random, input);
    }
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

FuzzBytes input_of(std::uint64_t seed, std::uint64_t run) {
    SeededRandom random{seed * 0x9e3779b97f4a7c15ULL + run};
    FuzzBytes input = valid_input(random);
    // Some stay as they are: what is valid must be accepted, again and again.
    const std::uint32_t mutations = random.below(7);
    for (std::uint32_t i = 0; i < mutations; ++i) mutate_once(random, input);
    return input;
}

void run_one(std::uint64_t seed, std::uint64_t run) {
    current_run = run;
    const FuzzBytes input = input_of(seed, run);
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

void write_corpus(const std::string& folder) {
    for (std::uint64_t i = 0; i < 64; ++i) {
        SeededRandom random{i};
        const FuzzBytes input = valid_input(random);
        std::FILE* file = std::fopen((folder + "/valid-" + std::to_string(i)).c_str(), "wb");
        PACE_CHECK(file != nullptr, "cannot write the corpus");
        PACE_CHECK(std::fwrite(input.data(), 1, input.size(), file) == input.size(), "short write");
        PACE_CHECK(std::fclose(file) == 0, "short write");
    }
}

}  // namespace

int main(int count, char** arguments) {
    std::uint64_t runs = 100'000;
    std::uint64_t first = 0;
    for (int i = 1; i < count; i += 2) {
        const std::string_view name = arguments[i];
        if (i + 1 == count) {
            std::fprintf(stderr, "usage: %s [--runs N] [--seed S] [--only RUN] [--corpus FOLDER]\n",
                         arguments[0]);
            return 2;
        }
        const std::uint64_t number = std::strtoull(arguments[i + 1], nullptr, 10);
        if (name == "--runs") runs = number;
        if (name == "--seed") current_seed = number;
        if (name == "--only") {
            first = number;
            runs = 1;
        }
        if (name == "--corpus") {
            write_corpus(arguments[i + 1]);
            return 0;
        }
    }
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) ::signal(signal, on_crash);
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t run = first; run < first + runs; ++run) run_one(current_seed, run);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rusage use{};
    ::getrusage(RUSAGE_SELF, &use);
    std::printf("%llu inputs of seed %llu, no failure, %.1f s, at most %ld MiB of memory\n",
                static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(current_seed), took.count(), use.ru_maxrss / 1024);
    return 0;
}
