// What the engine's runtime, the Python launcher and the compiled kernel agree on.
// Everything here is plain C of fixed layout: `engine/abi.py` holds the same structs for ctypes.
#ifndef METALWRIGHT_ABI_H
#define METALWRIGHT_ABI_H

typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef unsigned char u8;

enum { MW_LANES = 32 };  // lanes of a simdgroup on every Apple GPU
enum { MW_THREADGROUP_ARGUMENTS = 31 };

// One [[buffer(i)]] argument. Extents are in Metal's order: extents[0] is the contiguous dimension.
typedef struct {
  char *data;
  u64 bytes;
  const i32 *extents;
  char *written;  // one byte for each byte of data, set when a thread writes it; 0: not wanted
  u32 rank;
  u32 writable;
  char *shadow;  // what is known of the accesses to each word (observe.h); 0: it is not observed
  u32 fresh;     // its elements hold nothing until a thread writes them
  u32 unused;
} mw_buffer;

// Where one thread stands; all that the thread attributes of a kernel are computed from.
typedef struct {
  u32 local[3];        // thread position in its threadgroup
  u32 group[3];        // position of the threadgroup in the grid
  u32 group_size[3];   // size of this threadgroup: smaller at the grid's edge
  u32 full_size[3];    // size of a threadgroup as dispatched
  u32 grid_size[3];    // threads per grid
  u32 groups[3];       // threadgroups per grid
} mw_thread;

enum mw_fault_kind {
  MW_FAULT_NONE = 0,
  MW_FAULT_BUFFER,       // outside a buffer argument
  MW_FAULT_THREADGROUP,  // outside a threadgroup variable
  MW_FAULT_PRIVATE,      // outside a private variable
  MW_FAULT_CONSTANT,     // outside a constant of the program
  MW_FAULT_WILD,         // a pointer to nothing that the thread may touch
  MW_FAULT_READ_ONLY,    // a write to a buffer that is an input, or to a constant
  MW_FAULT_MISALIGNED,   // an access that its type's alignment does not allow
  MW_FAULT_BARRIER,      // threads at different barriers, or at one while others have ended
  MW_FAULT_STOPPED,      // the launcher asked to stop
  MW_FAULT_TRAP,         // code was reached that can never be: the end of a function that returns a value
  MW_FAULT_DIVISION,     // an integer divided by zero
  MW_FAULT_THREADGROUP_ARGUMENT,  // outside a [[threadgroup(n)]] argument
  MW_FAULT_LANES,        // an operation of a whole simdgroup, reached by some of its lanes
  MW_FAULT_SCOPE,        // a tensor operation of some simdgroups, in a threadgroup that has not so many
  MW_FAULT_DEPTH,        // a function that calls itself, nested deeper than was allowed
};

typedef struct {
  u32 kind;
  u32 site;
  u32 write;
  u32 object;      // index of the buffer, id of the threadgroup variable
  i32 padding;
  u32 position[3]; // of the thread in the grid
  u32 other_site;  // a barrier that other threads wait at; ~0: they have ended
  u32 size;        // bytes of the access
  long long offset;   // bytes from the object's start
  u64 object_bytes;
} mw_fault;

// One line of os_log, followed by `count` values of 64 bits, `count` letters of their kinds, and the format.
typedef struct {
  u32 bytes;         // of the whole record, a multiple of 8
  u32 level;
  u32 count;
  u32 format_bytes;  // without the closing zero
  u32 position[3];   // of the thread in the grid
  u32 unused;
} mw_log_record;

enum mw_event_kind { MW_EVENT_RACE = 1, MW_EVENT_UNINITIALISED, MW_EVENT_NUMBER };
enum mw_place { MW_PLACE_BUFFER, MW_PLACE_THREADGROUP };

// One access that took part in what an observer saw. `values` are the bytes of its word, where they are known.
typedef struct {
  u32 site;
  u32 position[3];  // of the thread in the grid
  u32 write;        // 0: it reads; 1: it writes; 2 and 3: the same, atomically
  u32 value;
} mw_observed;

// Something that an observer saw: the later access of two, and the earlier.
typedef struct {
  u32 kind;
  u32 place;
  u32 object;        // index of the buffer; what happened to a number
  u32 mask;          // the bytes of the word that both touched
  u64 offset;        // of the word, from the start of the buffer or of all threadgroup memory
  u64 count;         // how often these two places met
  u32 other_group;   // the two threads are of different threadgroups
  u32 barriers;      // barriers stood between, which do not order this kind of memory
  mw_observed now, before;
} mw_event;

typedef struct {
  const mw_buffer *buffers;
  u32 buffer_count;
  u32 reverse;            // run the threads of a threadgroup from last to first
  u32 grid_size[3];
  u32 group_size[3];
  u32 groups[3];
  u32 stop;               // set by anyone: every worker ends at its next chance
  u64 group_total;
  u64 group_next;         // taken by the workers, `group_chunk` at a time
  u64 group_chunk;
  const u32 *threadgroup_bytes;  // sizes of the [[threadgroup(n)]] arguments
  u32 threadgroup_count;
  u32 fault_taken;        // the first fault wins
  char *log;
  u64 log_bytes;          // room
  u64 log_used;           // what was asked for; past log_bytes: lines were dropped
  mw_event *events;       // what the observers saw, each pair of places once
  u32 event_room;
  u32 event_count;        // may be larger than the room
  u32 fenced;             // the program orders threadgroups by fences of its own
  u32 unused;
  mw_fault fault;
} mw_launch;

// What one worker (an OS thread of the launcher) brings.
typedef struct {
  char *arena;        // threadgroup memory
  u64 arena_bytes;
  char *stacks;       // stacks of the fibers, one after another
  u64 stack_bytes;    // distance from one to the next
  char *fibers;       // room for MW_FIBER_BYTES for each thread of a threadgroup
  char *scheduler_stack;    // of MW_SCHEDULER_BYTES, where the kernel is checked
  void *scheduler;    // stack pointer of the scheduler while the launcher runs
  void *launcher;     // stack pointer of the launcher while the scheduler runs
  char *arena_shadow; // as a buffer's
  u32 paused;         // mw_run came back to let the launcher look around: call it again
  u32 unused;
} mw_worker;

enum { MW_FIBER_BYTES = 256, MW_SCHEDULER_BYTES = 65536 };

enum { MW_SHADOW_BYTES = 36 };  // of each word of 4 bytes, and of a part of one at the end

#endif
