// A text field with suggestions, after the combobox pattern of the ARIA Authoring Practices.
// The server answers "search" with options; what it answered to is in `answered`, so that a late answer is not shown.
export default {
  template: `
    <div class="combobox" @focusout="leave">
      <label :for="id + '-field'">{{ label }}</label>
      <input
        :id="id + '-field'" ref="field" type="text" role="combobox" class="field"
        autocomplete="off" autocapitalize="off" autocorrect="off" spellcheck="false"
        aria-autocomplete="list" :aria-expanded="shown.length > 0 ? 'true' : 'false'" :aria-controls="id + '-list'"
        :aria-activedescendant="active >= 0 && shown.length ? id + '-option-' + active : null"
        :placeholder="placeholder" :value="typed" @input="type" @keydown="press" @click="open"
      />
      <ul v-show="shown.length" :id="id + '-list'" ref="list" role="listbox" class="options" :aria-label="label">
        <li
          v-for="(option, place) in shown" :key="option.name" :id="id + '-option-' + place" role="option"
          :aria-selected="place === active ? 'true' : 'false'" :class="{ active: place === active }"
          @mousedown.prevent="choose(place)" @mousemove="active = place"
        >
          <span class="option-label">{{ option.label }}</span>
          <span class="option-hint">{{ option.hint }}</span>
        </li>
      </ul>
      <span class="only-heard" role="status">{{ announced }}</span>
    </div>`,
  props: { id: String, label: String, placeholder: String, text: String, version: Number, options: Array, answered: String },
  emits: ["typed", "search", "choose", "submit"],
  data() {
    return { typed: this.text || "", active: -1, wanted: null, timer: null };
  },
  computed: {
    shown() {
      return this.wanted !== null && this.wanted === this.answered ? this.options : [];
    },
    announced() {
      if (this.wanted === null || this.wanted !== this.answered) return "";
      return this.shown.length === 1 ? "1 suggestion" : `${this.shown.length} suggestions`;
    },
  },
  watch: {
    version() {
      this.typed = this.text || "";
      this.close();
    },
    shown(options) {
      // What was typed is taken for the first suggestion; opening the list alone chooses nothing.
      this.active = options.length && this.wanted ? 0 : -1;
    },
  },
  unmounted() {
    clearTimeout(this.timer);
  },
  methods: {
    type(event) {
      this.typed = event.target.value;
      this.$emit("typed", this.typed);
      this.search(this.typed, 120);
    },
    open() {
      if (this.wanted === null) this.search("", 0);
    },
    search(text, delay) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        this.timer = null;
        this.wanted = text;
        this.$emit("search", text);
      }, delay);
    },
    close() {
      clearTimeout(this.timer);
      this.timer = null;
      this.wanted = null;
      this.active = -1;
    },
    leave(event) {
      if (!this.$el.contains(event.relatedTarget)) this.close();
    },
    choose(place) {
      const option = this.shown[place];
      this.typed = option.label;
      this.close();
      this.$emit("choose", option);
    },
    move(step) {
      const count = this.shown.length;
      this.active = this.active < 0 ? (step > 0 ? 0 : count - 1) : (this.active + step + count) % count;
      this.$nextTick(() => this.$refs.list.children[this.active]?.scrollIntoView({ block: "nearest" }));
    },
    press(event) {
      const isOpen = this.shown.length > 0;
      // While the next search waits, the list is about what was typed before: nothing in it is meant.
      const canChoose = isOpen && this.active >= 0 && this.timer === null;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        if (isOpen) this.move(event.key === "ArrowDown" ? 1 : -1);
        else this.search(this.wanted ?? "", 0);
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (canChoose) this.choose(this.active);
        else {
          this.close();
          this.$emit("submit");
        }
      } else if (event.key === "Escape" && isOpen) {
        event.preventDefault();
        this.close();
      } else if (event.key === "Tab" && canChoose) {
        this.choose(this.active);
      }
    },
  },
};
