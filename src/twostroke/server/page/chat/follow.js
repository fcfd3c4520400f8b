// Follows the newest line while text, figures or an error are added. After the reader scrolls up it stops following.
const NEAR = 40;

export class Follower {
  constructor(scroller, content, button) {
    Object.assign(this, { scroller, button });
    this.following = true;
    this.top = 0;
    scroller.addEventListener("scroll", () => this.scrolled());
    button.addEventListener("click", () => {
      this.follow();
      scroller.focus();
    });
    const grown = new ResizeObserver(() => this.keep());
    grown.observe(content);
    grown.observe(scroller);
  }

  get below() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  scrolled() {
    // Only scrolling up stops the following. Text that came since the last scroll moves the end down without the reader's wish.
    if (this.below < NEAR) this.following = true;
    else if (this.scroller.scrollTop < this.top - 1) this.following = false;
    this.top = this.scroller.scrollTop;
    this.button.hidden = this.following || this.below < NEAR;
  }

  follow() {
    this.following = true;
    this.keep();
  }

  keep() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.top = this.scroller.scrollTop;
    this.button.hidden = this.following || this.below < NEAR;
  }
}
