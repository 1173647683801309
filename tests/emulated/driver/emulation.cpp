#include "tests/emulated/driver/emulation.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <utility>

namespace paceline::emulated {
namespace {

struct World {
    std::mutex mutex;
    int devices = 1;
    LinkRules rules;
    std::mt19937_64 random{1};
    MemoryWatch appears = nullptr;
    MemoryWatch goes = nullptr;
    bool collects = false;
    std::vector<std::string> misuses;
    std::atomic<int> objects{0};
};

World& world() {
    static World* one = new World;  // never destroyed: threads may outlive main()
    return *one;
}

}  // namespace

void set_devices(int count) {
    const std::scoped_lock lock(world().mutex);
    world().devices = count;
}

int devices() {
    const std::scoped_lock lock(world().mutex);
    return world().devices;
}

void set_link_rules(const LinkRules& rules) {
    const std::scoped_lock lock(world().mutex);
    world().rules = rules;
    world().random.seed(rules.seed);
}

LinkRules link_rules() {
    const std::scoped_lock lock(world().mutex);
    return world().rules;
}

std::chrono::microseconds draw_delay(std::chrono::microseconds most) {
    const std::scoped_lock lock(world().mutex);
    return std::chrono::microseconds{
        std::uniform_int_distribution<std::int64_t>{0, most.count()}(world().random)};
}

void watch_memory(MemoryWatch appears, MemoryWatch goes) {
    const std::scoped_lock lock(world().mutex);
    world().appears = appears;
    world().goes = goes;
}

void tell_memory(bool appears, const std::byte* at, std::size_t bytes) {
    MemoryWatch watch = nullptr;
    {
        const std::scoped_lock lock(world().mutex);
        watch = appears ? world().appears : world().goes;
    }
    if (watch != nullptr) watch(at, bytes);
}

void misuse(const std::string& what) {
    const std::scoped_lock lock(world().mutex);
    if (world().collects) {
        world().misuses.push_back(what);
        return;
    }
    std::fprintf(stderr, "emulated device: misuse: %s\n", what.c_str());
    std::abort();
}

void collect_misuse() {
    const std::scoped_lock lock(world().mutex);
    world().collects = true;
}

std::vector<std::string> take_misuse() {
    const std::scoped_lock lock(world().mutex);
    return std::exchange(world().misuses, {});
}

void count_object(int change) {
    world().objects += change;
}

int objects() {
    return world().objects;
}

}  // namespace paceline::emulated
