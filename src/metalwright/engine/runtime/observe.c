// What watched kernels do with memory that threads share: accesses of two threads to the same bytes with nothing in
// between that orders them, and reads of what nobody has written.
//
// For each word of 4 bytes there is the last write and two reads of different threads since. A barrier's number, of
// those that order this kind of memory, tells whether two accesses of one threadgroup are ordered; so a pair is found
// from one execution, whichever order the threads happened to run in.
#include "context.h"

enum { MW_WORD = 4, MW_GROUP_BITS = 10, MW_EXCHANGE_BITS = 12, MW_VECTOR_BYTES = 16 };
enum { MW_USED = 1, MW_ATOMIC = 2, MW_UNUSED = 4, MW_MODIFIES = 8 };

typedef struct {
  u32 thread;         // number of its threadgroup, and its index in that
  u32 epoch;          // barriers and exchanges before it
  unsigned short site;
  u8 mask : 4;        // bytes of the word
  u8 barriers : 4;    // passed before it, of any kind: the last digits
  u8 flags : 4;
  u8 ever : 4;        // of a write: bytes that have been written at all
} mw_cell;

typedef struct {
  mw_cell write, reads[2];
} mw_word;

_Static_assert(sizeof(mw_word) == MW_SHADOW_BYTES, "abi.h promises this size to the launcher");

// One access to one word.
typedef struct {
  mw_context *context;
  enum mw_place place;
  u32 object;
  const char *start;
  u32 how;
  mw_cell cell;
} mw_access;

static int mw_same_group(u32 a, u32 b) { return a >> MW_GROUP_BITS == b >> MW_GROUP_BITS; }

// Whether something stands between an earlier access and this one that orders them.
static int mw_ordered(const mw_access *now, const mw_cell *before) {
  const mw_cell *cell = &now->cell;
  if (!mw_same_group(before->thread, cell->thread)) return now->place == MW_PLACE_THREADGROUP || now->context->launch->fenced;
  if (before->epoch >> MW_EXCHANGE_BITS != cell->epoch >> MW_EXCHANGE_BITS) return 1;
  int one_simdgroup = before->thread / MW_LANES == cell->thread / MW_LANES;
  return one_simdgroup && before->epoch != cell->epoch;
}

static int mw_conflicts(const mw_access *now, const mw_cell *before) {
  return before->flags & MW_USED && before->thread != now->cell.thread && before->mask & now->cell.mask &&
         !(before->flags & now->cell.flags & MW_ATOMIC) && !mw_ordered(now, before);
}

// The bytes of a word that a mask names: the others may lie behind the end of a buffer.
static u32 mw_value(const char *word, u32 mask) {
  u32 value = 0;
  for (u32 byte = 0; byte < MW_WORD; byte++)
    if (mask >> byte & 1) value |= (u32)(u8)word[byte] << 8 * byte;
  return value;
}

static mw_observed mw_told(mw_context *context, const mw_cell *cell, u32 write) {
  const mw_launch *launch = context->launch;
  mw_observed told = {0};
  told.site = cell->site == 0xffff ? ~0u : cell->site;
  told.write = write | (cell->flags & MW_ATOMIC);
  u64 group = cell->thread >> MW_GROUP_BITS, index = cell->thread & ((1u << MW_GROUP_BITS) - 1);
  for (int axis = 0; axis < 3; axis++) {
    u32 at = group % launch->groups[axis] * launch->group_size[axis];
    u32 left = launch->grid_size[axis] - at;
    u32 size = left < launch->group_size[axis] ? left : launch->group_size[axis];
    told.position[axis] = at + index % size;
    group /= launch->groups[axis];
    index /= size;
  }
  return told;
}

static void mw_record(mw_launch *launch, const mw_event *event) {
  for (u32 i = 0; i < launch->event_count && i < launch->event_room; i++) {
    mw_event *known = &launch->events[i];
    if (known->kind == event->kind && known->now.site == event->now.site && known->before.site == event->before.site &&
        known->place == event->place && known->object == event->object && known->other_group == event->other_group) {
      known->count++;
      return;
    }
  }
  if (launch->event_count < launch->event_room) launch->events[launch->event_count] = *event;
  launch->event_count++;
}

// Records what the thread's last writes were: those that wrote what was there are no races among writes.
void mw_settle(mw_context *context) {
  for (u32 i = 0; i < context->pending_count; i++) {
    mw_pending *pending = &context->pending[i];
    u32 value = mw_value(pending->word, pending->event.mask);
    if (pending->event.before.write & 1 && value == pending->event.before.value) continue;
    pending->event.now.value = value;
    mw_record(context->launch, &pending->event);
  }
  context->pending_count = 0;
}

static mw_event mw_seen(const mw_access *now, u32 kind, const char *word) {
  mw_event event = {0};
  event.kind = kind;
  event.place = now->place;
  event.object = now->object;
  event.mask = now->cell.mask;
  event.offset = word - now->start;
  event.count = 1;
  event.now = mw_told(now->context, &now->cell, now->how & 1);
  return event;
}

MW_SELDOM static void mw_see_race(const mw_access *now, const mw_cell *before, u32 before_writes, const char *word) {
  mw_context *context = now->context;
  mw_event event = mw_seen(now, MW_EVENT_RACE, word);
  event.mask &= before->mask;
  event.other_group = !mw_same_group(before->thread, now->cell.thread);
  event.barriers = !event.other_group && before->barriers != now->cell.barriers;
  event.before = mw_told(context, before, before_writes);
  event.before.value = mw_value(word, event.mask);
  event.now.value = event.before.value;
  if (!(now->how & 1)) {
    mw_record(context->launch, &event);
  } else if (context->pending_count < MW_PENDING) {
    mw_pending *pending = &context->pending[context->pending_count++];
    pending->word = word;
    pending->event = event;
  }
}

MW_SELDOM static void mw_see_unwritten(const mw_access *now, u32 mask, const char *word) {
  mw_event event = mw_seen(now, MW_EVENT_UNINITIALISED, word);
  event.mask = mask;
  event.now.value = mw_value(word, mask);
  event.before.site = ~0u;
  mw_record(now->context->launch, &event);
}

static void mw_note_read(const mw_access *now, mw_word *word) {
  mw_cell *first = &word->reads[0], *second = &word->reads[1];
  // a read that is ordered before this one is ordered before what follows this one as well
  if (!(first->flags & MW_USED) || first->thread == now->cell.thread || mw_ordered(now, first)) {
    u32 mask = first->thread == now->cell.thread && first->epoch == now->cell.epoch ? first->mask : 0;
    *first = now->cell;
    first->mask |= mask;
  } else {
    *second = now->cell;
  }
}

static void mw_note_write(const mw_access *now, mw_word *word) {
  mw_cell *last = &word->write;
  u32 mask = last->flags & MW_USED && last->thread == now->cell.thread && last->epoch == now->cell.epoch ? last->mask : 0;
  int lost = now->place == MW_PLACE_THREADGROUP && !mw_same_group(last->thread, now->cell.thread);
  u32 ever = last->flags & MW_USED && !lost ? last->ever : 0;
  *last = now->cell;
  last->mask |= mask;
  last->ever = ever | now->cell.mask;
}

static int mw_unwritten(const mw_access *now, const mw_word *word) {
  const mw_cell *last = &word->write;
  if (!(last->flags & MW_USED)) return 1;
  if (now->place == MW_PLACE_THREADGROUP && !mw_same_group(last->thread, now->cell.thread)) return 1;
  return (last->ever & now->cell.mask) == 0;
}

// An access to memory that threads share. `how`: as in checks.c; `fresh`: what nobody wrote is nothing.
static void mw_watch(mw_context *context, enum mw_place place, u32 object, char *start, char *shadow, char *at, u64 size,
                     u32 site, u32 how, u32 fresh) {
  if (context->pending_count) mw_settle(context);
  if (!shadow || !size) return;
  const mw_fiber *fiber = context->current;
  mw_access now = {context, place, object, start, how, {0}};
  now.cell.thread = context->group << MW_GROUP_BITS | fiber->index;
  now.cell.epoch = context->epochs[place] << MW_EXCHANGE_BITS |
                   (context->exchanges[fiber->index / MW_LANES] & ((1u << MW_EXCHANGE_BITS) - 1));
  now.cell.site = site < 0xffff ? site : 0xffff;
  now.cell.barriers = context->barriers;
  now.cell.flags = MW_USED | (how & MW_ATOMIC);
  u64 offset = at - start, end = offset + size, words = 0, unwritten = 0;
  char *missing = 0;  // the first word of them, and its bytes
  u32 missing_mask = 0;
  for (u64 first = offset / MW_WORD * MW_WORD; first < end; first += MW_WORD, words++) {
    mw_word *word = (mw_word *)shadow + first / MW_WORD;
    now.cell.mask = 0xf;
    if (first < offset) now.cell.mask &= 0xfu << (offset - first);
    if (first + MW_WORD > end) now.cell.mask &= 0xfu >> (first + MW_WORD - end);
    if (mw_conflicts(&now, &word->write)) mw_see_race(&now, &word->write, 1, start + first);
    int reads = how & MW_MODIFIES || !(how & (MW_UNUSED | 1));
    if (fresh && reads && mw_unwritten(&now, word)) {
      if (!unwritten++) missing = start + first, missing_mask = now.cell.mask;
    }
    if (how & 1) {
      for (int i = 0; i < 2; i++)
        if (mw_conflicts(&now, &word->reads[i])) mw_see_race(&now, &word->reads[i], 0, start + first);
      mw_note_write(&now, word);
    } else {
      mw_note_read(&now, word);
    }
  }
  // a vector of three is read as one of four, and a struct is copied with the holes in it
  if (unwritten && (unwritten == words || (size < MW_VECTOR_BYTES))) mw_see_unwritten(&now, missing_mask, missing);
}

static void mw_watch_buffer(mw_context *context, u32 index, char *at, u64 size, u32 site, u32 how) {
  const mw_buffer *buffer = &context->buffers[index];
  mw_watch(context, MW_PLACE_BUFFER, index, buffer->data, buffer->shadow, at, size, site, how, buffer->fresh);
}

static void mw_watch_arena(mw_context *context, char *at, u64 size, u32 site, u32 how) {
  mw_watch(context, MW_PLACE_THREADGROUP, ~0u, context->arena, context->worker->arena_shadow, at, size, site, how, 1);
}

// A threadgroup begins: nothing of its own has happened yet.
void mw_begin_observing(mw_context *context, u64 group) {
  context->group = (u32)group;
  context->barriers = 0;
  context->epochs[MW_PLACE_BUFFER] = context->epochs[MW_PLACE_THREADGROUP] = 0;
  for (int i = 0; i < MW_LANES; i++) context->exchanges[i] = 0;
  context->pending_count = 0;
}

// Arithmetic that gives anything on a GPU; `what` is numbered by the front-end.
void __mw_number(mw_context *context, u32 what, u32 site) {
  if (!__mw_watched) return;
  mw_event event = {0};
  event.kind = MW_EVENT_NUMBER;
  event.object = what;
  event.count = 1;
  mw_position(&context->current->thread, event.now.position);
  event.now.site = site;
  event.before.site = ~0u;
  mw_record(context->launch, &event);
}
